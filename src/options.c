/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "sampler.h"

/* Words of libfuse and the kernel that are passed on as they are. */
static const char *const fuse_words[] = { "allow_other", "allow_root",	"fsname",
					  "subtype",	 "max_read",	"auto_unmount",
					  "nosuid",	 "suid",	"nodev",
					  "dev",	 "noexec",	"exec",
					  "noatime",	 "atime",	"debug",
					  "default_permissions" };
/* Words of fstab and mount(8) that mean nothing to us. */
static const char *const ignored[] = { "rw",   "auto",	  "noauto", "user", "users",
				       "nouser", "defaults", "nofail", "_netdev", "owner" };

static const char *const order_words[] = { "seed",  "sampler", "index", "split",
					   "shuffle", "drop_last", "world", "ranks",
					   "batch", "workers", "epoch", "epochs" };

static bool is_in(const char *const *list, size_t count, const char *word)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(list[i], word))
			return true;
	return false;
}
#define IS_IN(list, word) is_in(list, sizeof list / sizeof list[0], word)

static bool is_family_word(const char *word)
{
	const struct clair_family *family;

	for (size_t i = 0; (family = clair_family_at(i)); i++)
		for (const struct clair_family_word *w = family->words; w && w->name; w++)
			if (!strcmp(w->name, word))
				return true;
	return false;
}

bool clair_options_is_order_word(const char *word)
{
	return IS_IN(order_words, word) || is_family_word(word);
}

int clair_options_init(struct clair_options *o)
{
	uint64_t memory = clair_memory_limit();

	*o = (struct clair_options){ .ram = memory / 10,
				     .staging = memory / 20,
				     .free_bytes = 1ull << 30 };
	return 0;
}

void clair_options_finish(struct clair_options *o)
{
	clair_words_finish(&o->order);
	for (size_t i = 0; i < o->stream_count; i++) {
		free(o->streams[i].path);
		clair_words_finish(&o->streams[i].words);
	}
	free(o->streams);
	for (size_t i = 0; i < o->cache_count; i++)
		free(o->caches[i].path);
	free(o->caches);
	free(o->catalog);
	free(o->log);
	free(o->fuse);
	*o = (struct clair_options){ 0 };
}

static int set_text(char **field, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	free(*field);
	*field = copy;
	return 0;
}

/* --- values ------------------------------------------------------------------------ */

static int set_size(const char *word, const char *value, uint64_t *bytes, char **error)
{
	if (clair_size_parse(value, clair_memory_limit(), bytes) < 0)
		return clair_bad(error,
				 "%s=%s: not a size; give bytes, 512M, 2G or 10%% (of "
				 "memory)",
				 word, value);
	return 0;
}

static int set_flag(const char *word, const char *value, bool *flag, char **error)
{
	struct clair_words one = { 0 };

	int r = clair_words_set(&one, word, value ? value : "1");
	if (r == 0)
		r = clair_words_bool(&one, word, false, flag, error);
	clair_words_finish(&one);
	return r;
}

static int set_threads(const char *word, const char *value, unsigned *out, char **error)
{
	char *end;
	unsigned long v = strtoul(value, &end, 10);

	if (*value < '0' || *value > '9' || *end || v > 256)
		return clair_bad(error, "%s=%s: must be 0 (by itself) to 256", word, value);
	*out = (unsigned)v;
	return 0;
}

static int add_cache(struct clair_options *o, const char *value, char **error)
{
	const char *colon = strrchr(value, ':');
	uint64_t bytes;

	if (!colon || colon == value)
		return clair_bad(error, "cache=%s: must be DIR:SIZE, such as /ssd/cache:200G",
				 value);
	if (clair_size_parse(colon + 1, 0, &bytes) < 0 || strchr(colon, '%'))
		return clair_bad(error,
				 "cache=%s: '%s' is not a size; give bytes, 512M or 200G",
				 value, colon + 1);
	struct clair_cache_option *caches =
		realloc(o->caches, (o->cache_count + 1) * sizeof *caches);
	if (!caches)
		return -ENOMEM;
	o->caches = caches;
	char *path = strndup(value, colon - value);
	if (!path)
		return -ENOMEM;
	caches[o->cache_count++] = (struct clair_cache_option){ path, bytes };
	return 0;
}

static int set_keep(struct clair_options *o, const char *value, char **error)
{
	static const char *const names[] = { "auto", "kernel", "arena" };

	for (int i = 0; i < 3; i++) {
		if (!strcmp(names[i], value)) {
			o->keep = i;
			return 0;
		}
	}
	return clair_bad(error, "keep=%s: must be auto, kernel or arena", value);
}

static int check_log(const char *value, char **error)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	size_t n = strcspn(value, ":");

	for (int i = 0; i < 4; i++)
		if (strlen(names[i]) == n && !strncmp(names[i], value, n))
			return 0;
	return clair_bad(error, "log=%s: must be error, warning, info or debug, with :FILE",
			 value);
}

/* --- streams ----------------------------------------------------------------------- */

static struct clair_stream_option *stream_of(struct clair_options *o, const char *path,
					     size_t n)
{
	while (n && path[n - 1] == '/')
		n--;
	while (n && *path == '/') {
		path++;
		n--;
	}
	while (n >= 2 && path[0] == '.' && path[1] == '/') {
		path += 2;
		n -= 2;
	}
	if (n == 1 && *path == '.')
		n = 0;
	for (size_t i = 0; i < o->stream_count; i++)
		if (strlen(o->streams[i].path) == n && !memcmp(o->streams[i].path, path, n))
			return &o->streams[i];
	struct clair_stream_option *streams =
		realloc(o->streams, (o->stream_count + 1) * sizeof *streams);
	if (!streams)
		return NULL;
	o->streams = streams;
	char *copy = strndup(path, n);
	if (!copy)
		return NULL;
	streams[o->stream_count] = (struct clair_stream_option){ .path = copy };
	return &streams[o->stream_count++];
}

static int set_order_word(struct clair_words *words, const char *word, const char *value,
			  char **error)
{
	int r = clair_options_check_word(word, value, error);

	return r < 0 ? r : clair_words_set(words, word, value);
}

/* PATH:WORD=VALUE;WORD=VALUE… */
static int add_stream(struct clair_options *o, const char *value, char **error)
{
	const char *colon = strchr(value, ':');

	if (!colon)
		return clair_bad(error,
				 "stream=%s: must be PATH:WORD=VALUE;WORD=VALUE, such as "
				 "val:sampler=sequential",
				 value);
	struct clair_stream_option *s = stream_of(o, value, colon - value);
	if (!s)
		return -ENOMEM;
	autofree char *text = strdup(colon + 1);
	if (!text)
		return -ENOMEM;
	char *rest = text, *pair;
	while ((pair = strsep(&rest, ";"))) {
		if (!*pair)
			continue;
		char *equals = strchr(pair, '=');
		if (!equals)
			return clair_bad(error, "stream=%s: '%s' must be WORD=VALUE", value,
					 pair);
		*equals = '\0';
		if (!clair_options_is_order_word(pair))
			return clair_bad(error,
					 "stream=%s: '%s' is no word that describes an "
					 "order; see clairfs.conf(5)",
					 value, pair);
		int r = set_order_word(&s->words, pair, equals + 1, error);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- words ------------------------------------------------------------------------- */

static int need_value(const char *word, const char *value, char **error)
{
	return value && *value ? 0 : clair_bad(error, "%s: needs a value, %s=…", word, word);
}

static int add_fuse(struct clair_options *o, const char *word, const char *value)
{
	char *joined;

	if (asprintf(&joined, "%s%s%s%s%s", o->fuse ? o->fuse : "", o->fuse ? "," : "", word,
		     value ? "=" : "", value ? value : "") < 0)
		return -ENOMEM;
	free(o->fuse);
	o->fuse = joined;
	return 0;
}

static int set_mount_word(struct clair_options *o, const char *word, const char *value,
			  bool *known, char **error)
{
	*known = true;
	if (!strcmp(word, "ram"))
		return set_size(word, value, &o->ram, error);
	if (!strcmp(word, "staging"))
		return set_size(word, value, &o->staging, error);
	if (!strcmp(word, "free"))
		return set_size(word, value, &o->free_bytes, error);
	if (!strcmp(word, "cache"))
		return add_cache(o, value, error);
	if (!strcmp(word, "threads"))
		return set_threads(word, value, &o->threads, error);
	if (!strcmp(word, "discover-threads"))
		return set_threads(word, value, &o->discover_threads, error);
	if (!strcmp(word, "catalog"))
		return set_text(&o->catalog, value);
	if (!strcmp(word, "stream"))
		return add_stream(o, value, error);
	if (!strcmp(word, "keep"))
		return set_keep(o, value, error);
	if (!strcmp(word, "config"))
		return clair_options_read_file(o, value, error);
	if (!strcmp(word, "log")) {
		int r = check_log(value, error);
		return r < 0 ? r : set_text(&o->log, value);
	}
	*known = false;
	return 0;
}

static int set_writable(struct clair_options *o, const char *value, char **error)
{
	int r = set_flag("writable", value, &o->writable, error);

	if (r == 0 && o->writable)
		return clair_bad(error, "writable=1: writing through is not there yet; "
					"leave it out");
	return r;
}

static int set_word(struct clair_options *o, const char *word, const char *value,
		    char **error)
{
	static const char *const with_value[] = { "ram",    "staging", "free",	 "cache",
						  "threads", "catalog", "stream", "keep",
						  "config", "log",     "discover-threads" };
	bool known;

	if (!strcmp(word, "ro"))
		return set_flag(word, value, &o->read_only, error);
	if (!strcmp(word, "writable"))
		return set_writable(o, value, error);
	if (IS_IN(fuse_words, word))
		return add_fuse(o, word, value);
	if (IS_IN(ignored, word) || !strncmp(word, "x-", 2))
		return 0;
	if (IS_IN(with_value, word) || clair_options_is_order_word(word)) {
		int r = need_value(word, value, error);
		if (r < 0)
			return r;
		r = set_mount_word(o, word, value, &known, error);
		return known || r < 0 ? r : set_order_word(&o->order, word, value, error);
	}
	return clair_bad(error, "%s: there is no such option; clairfs.conf(5) lists them",
			 word);
}

int clair_options_check_word(const char *word, const char *value, char **error)
{
	static const struct {
		const char *word;
		uint64_t min, max;
	} numbers[] = { { "world", 1, 1 << 24 },     { "batch", 0, 1u << 30 },
			{ "workers", 0, 1 << 16 },   { "epoch", 0, UINT64_MAX / 4 },
			{ "epochs", 1, UINT64_MAX / 4 } };
	struct clair_words one = { 0 };
	uint64_t v = 0;
	bool flag;
	int r = clair_words_set(&one, word, value);

	for (size_t i = 0; r == 0 && i < sizeof numbers / sizeof numbers[0]; i++) {
		if (strcmp(numbers[i].word, word))
			continue;
		r = clair_words_uint(&one, word, 0, numbers[i].max, &v, error);
		if (r == 0 && v < numbers[i].min)
			r = clair_bad(error, "%s=%s: must be at least %llu", word, value,
				      (unsigned long long)numbers[i].min);
	}
	if (r == 0 && !strcmp(word, "seed") && strcmp(value, "auto"))
		r = clair_words_u64(&one, word, 0, &v, error);
	if (r == 0 && (!strcmp(word, "shuffle") || !strcmp(word, "drop_last")))
		r = clair_words_bool(&one, word, false, &flag, error);
	if (r == 0 && !strcmp(word, "sampler") && strcmp(value, "auto") &&
	    strncmp(value, "list:", 5) && !clair_family_find(value))
		r = clair_bad(error,
			      "sampler=%s: there is no such sampler; `clairfs order --list` "
			      "shows them",
			      value);
	clair_words_finish(&one);
	return r;
}

/* Splits at commas; `\,` is a comma in a value. A part without '=' that follows `ranks=`
 * and begins with a digit belongs to it (ranks=0,2). */
int clair_options_add(struct clair_options *o, const char *text, char **error)
{
	autofree char *copy = strdup(text);
	char *p = copy;

	if (!copy)
		return -ENOMEM;
	while (*p) {
		char *word = p, *to = p;
		bool ranks = !strncmp(word, "ranks=", 6);
		for (; *p; p++) {
			if (*p == '\\' && (p[1] == ',' || p[1] == '\\'))
				p++;
			else if (*p == ',' && !(ranks && p[1] >= '0' && p[1] <= '9'))
				break;
			*to++ = *p;
		}
		if (*p == ',')
			p++;
		*to = '\0';
		if (!*word)
			continue;
		char *equals = strchr(word, '=');
		if (equals)
			*equals++ = '\0';
		int r = set_word(o, word, equals, error);
		if (r < 0)
			return r;
	}
	return 0;
}

/* --- INI --------------------------------------------------------------------------- */

struct ini {
	struct clair_options *options;
	char **error;
	int r;
};

static int ini_line(void *arg, const char *section, const char *name, const char *value)
{
	struct ini *ini = arg;

	if (strcmp(section, "clairfs"))
		return 1; /* other programs' sections */
	if (!strcmp(name, "config"))
		ini->r = clair_bad(ini->error, "config=%s: a file cannot name another", value);
	else
		ini->r = set_word(ini->options, name, value, ini->error);
	return ini->r == 0;
}

int clair_options_read_file(struct clair_options *o, const char *file, char **error)
{
	struct ini ini = { o, error, 0 };

	int line = ini_parse(file, ini_line, &ini);
	if (line == -1)
		return clair_bad(error, "config=%s: %s", file, strerror(errno));
	if (ini.r < 0 && line > 0 && *error) {
		autofree char *inner = *error;
		return clair_bad(error, "%s:%d: %s", file, line, inner);
	}
	if (line != 0)
		return clair_bad(error, "%s:%d: not a line of an INI file (WORD = VALUE)",
				 file, line);
	return ini.r;
}

/* --- environment ------------------------------------------------------------------- */

static const char *first_of(const char *const *names)
{
	for (; *names; names++) {
		const char *value = getenv(*names);
		char *end;
		if (!value || !*value)
			continue;
		strtoul(value, &end, 10);
		if (!*end)
			return value;
	}
	return NULL;
}

int clair_options_environment(struct clair_options *o)
{
	static const char *const worlds[] = { "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
					      "PMI_SIZE", "SLURM_NTASKS", NULL };
	static const char *const ranks[] = { "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
					     "SLURM_PROCID", NULL };
	const char *world = first_of(worlds), *rank = first_of(ranks);
	int r = 0;

	if (clair_words_get(&o->order, "world") || !world || strtoul(world, NULL, 10) < 1)
		return 0;
	r = clair_words_set(&o->order, "world", world);
	if (r == 0 && rank && !clair_words_get(&o->order, "ranks") &&
	    strtoul(rank, NULL, 10) < strtoul(world, NULL, 10))
		r = clair_words_set(&o->order, "ranks", rank);
	return r;
}

/* --- all together ------------------------------------------------------------------ */

static int check_stream(const struct clair_options *o, const struct clair_words *own,
			char **error)
{
	struct clair_words words = { 0 };
	autofree uint32_t *ranks = NULL;
	uint64_t world = 1, epoch = 0, epochs = 0;
	size_t count;

	int r = clair_words_copy(&words, &o->order);
	if (r == 0 && own)
		r = clair_words_copy(&words, own);
	if (r == 0)
		r = clair_words_uint(&words, "world", 1, UINT32_MAX, &world, error);
	const char *text = clair_words_get(&words, "ranks");
	if (r == 0 && text)
		r = clair_ranks_parse(text, (uint32_t)world, &ranks, &count, error);
	if (r == 0)
		r = clair_words_uint(&words, "epoch", 0, UINT64_MAX, &epoch, error);
	if (r == 0)
		r = clair_words_uint(&words, "epochs", 0, UINT64_MAX, &epochs, error);
	if (r == 0 && clair_words_get(&words, "epochs") && epochs > UINT64_MAX - epoch)
		r = clair_bad(error, "epochs is too large");
	clair_words_finish(&words);
	return r;
}

int clair_options_check(const struct clair_options *o, char **error)
{
	int r = check_stream(o, NULL, error);

	for (size_t i = 0; r == 0 && i < o->stream_count; i++)
		r = check_stream(o, &o->streams[i].words, error);
	for (size_t i = 0; r == 0 && i < o->cache_count; i++)
		for (size_t k = 0; r == 0 && k < i; k++)
			if (!strcmp(o->caches[i].path, o->caches[k].path))
				r = clair_bad(error, "cache=%s: given twice",
					      o->caches[i].path);
	return r;
}
