/* SPDX-License-Identifier: BSD-3-Clause */
#include "options.h"

#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "index.h"
#include "placement.h"
#include "sampler.h"

/* Words of libfuse and the kernel that are passed on as they are. */
static const char *const fuse_words[] = { "allow_other", "allow_root",	"fsname",
					  "subtype",	 "max_read",	"auto_unmount",
					  "nosuid",	 "suid",	"nodev",
					  "dev",	 "noexec",	"exec",
					  "noatime",	 "atime",	"debug",
					  "default_permissions", "clone_fd",
					  "max_idle_threads" };
/* Words of fstab and mount(8) that mean nothing to us. */
static const char *const ignored[] = { "auto",	  "noauto", "user", "users",
				       "nouser", "defaults", "nofail", "_netdev", "owner",
				       "group", "async", "sync", "dirsync", "relatime",
				       "norelatime", "strictatime", "nostrictatime",
				       "diratime", "nodiratime", "comment" };

/* rank is another name of ranks. */
static const char *const order_words[] = { "rank", "seed",  "sampler", "index", "split",
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

bool clair_options_is_common_word(const char *word)
{
	return IS_IN(order_words, word);
}

bool clair_options_is_order_word(const char *word)
{
	return clair_options_is_common_word(word) || is_family_word(word);
}

bool clair_options_says_order(const struct clair_words *words)
{
	const char *seed = clair_words_get(words, "seed");
	const char *sampler = clair_words_get(words, "sampler");

	return (seed && strcmp(seed, "auto")) || (sampler && strcmp(sampler, "auto"));
}

int clair_options_init(struct clair_options *o)
{
	uint64_t memory = clair_memory_limit();

	*o = (struct clair_options){ .ram = memory / 10,
				     .staging = memory / 20,
				     .free_bytes = 1ull << 30,
				     .peers = true };
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
	free(o->placement);
	free(o->fuse);
	*o = (struct clair_options){ 0 };
}

/* The daemon leaves the folder in which it was started: files are kept by absolute paths.
 * Heap, NULL without memory. PREFIX (`list:`) comes first as it is. */
static char *absolute(const char *prefix, const char *file)
{
	autofree char *here = *file == '/' || !*file ? NULL : getcwd(NULL, 0);
	char *whole;

	while (here && file[0] == '.' && file[1] == '/')
		file += 2;
	if (asprintf(&whole, "%s%s%s%s", prefix, here ? here : "", here ? "/" : "", file) < 0)
		return NULL;
	return whole;
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
	if (clair_size_parse(colon + 1, 0, &bytes) < 0 || strchr(colon, '%') || !bytes)
		return clair_bad(error,
				 "cache=%s: '%s' is not a size; give bytes, 512M or 200G",
				 value, colon + 1);
	struct clair_cache_option *caches =
		realloc(o->caches, (o->cache_count + 1) * sizeof *caches);
	if (!caches)
		return -ENOMEM;
	o->caches = caches;
	autofree char *path = strndup(value, colon - value);
	if (!path)
		return -ENOMEM;
	while (strlen(path) > 1 && path[strlen(path) - 1] == '/')
		path[strlen(path) - 1] = '\0';
	caches[o->cache_count].path = absolute("", path);
	caches[o->cache_count].bytes = bytes;
	if (!caches[o->cache_count].path)
		return -ENOMEM;
	o->cache_count++;
	return 0;
}

static int set_placement(struct clair_options *o, const char *value, char **error)
{
	char *copy;

	if (!clair_policy_find(value))
		return clair_bad(error, "placement=%s: must be clairfs or nopfs", value);
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(o->placement);
	o->placement = copy;
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

static int set_file(char **field, const char *prefix, const char *file)
{
	char *path = absolute(prefix, file);

	if (!path)
		return -ENOMEM;
	free(*field);
	*field = path;
	return 0;
}

static int set_log(struct clair_options *o, const char *value, char **error)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	size_t n = strcspn(value, ":");

	for (int i = 0; i < 4; i++) {
		char level[16];

		if (strlen(names[i]) != n || strncmp(names[i], value, n))
			continue;
		snprintf(level, sizeof level, "%s%s", names[i], value[n] ? ":" : "");
		return set_file(&o->log, level, value[n] ? value + n + 1 : "");
	}
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

int clair_options_set_order_word(struct clair_words *words, const char *word,
				 const char *value, char **error)
{
	static const char *const with_file[] = { "list:", "coco:", "json:" };
	int r = clair_options_check_word(word, value, error);

	if (r < 0)
		return r;
	if (!strcmp(word, "rank"))
		word = "ranks";
	for (size_t i = 0; i < sizeof with_file / sizeof with_file[0]; i++) {
		if (strncmp(value, with_file[i], 5))
			continue;
		autofree char *path = absolute(with_file[i], value + 5);
		return path ? clair_words_set(words, word, path) : -ENOMEM;
	}
	return clair_words_set(words, word, value);
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
		int r = clair_options_set_order_word(&s->words, pair, equals + 1,
						     error);
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
		return set_file(&o->catalog, "", value);
	if (!strcmp(word, "stream"))
		return add_stream(o, value, error);
	if (!strcmp(word, "keep"))
		return set_keep(o, value, error);
	if (!strcmp(word, "placement"))
		return set_placement(o, value, error);
	if (!strcmp(word, "config"))
		return clair_options_read_file(o, value, error);
	if (!strcmp(word, "log")) {
		return set_log(o, value, error);
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
						  "config", "log",     "discover-threads",
						  "placement" };
	bool known;

	if (!strcmp(word, "peers"))
		return set_flag(word, value, &o->peers, error);
	if (!strcmp(word, "ro"))
		return set_flag(word, value, &o->read_only, error);
	if (!strcmp(word, "rw")) {
		o->read_only = false;
		return 0;
	}
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
		return known || r < 0 ?
			       r :
			       clair_options_set_order_word(&o->order, word, value, error);
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
	if (r == 0 && !strcmp(word, "index") && !clair_index_exists(value))
		r = clair_bad(error,
			      "index=%s: there is no such dataset order; `clairfs order "
			      "--list` shows them",
			      value);
	clair_words_finish(&one);
	return r;
}

/* A comma after `…ranks=0` and before a digit belongs to the list of ranks. */
static bool in_ranks(const char *word, const char *end)
{
	const char *equals = end;

	while (equals > word && equals[-1] != '=')
		equals--;
	if (equals - word < 6 || strncmp(equals - 6, "ranks=", 6))
		return false;
	for (const char *p = equals; p < end; p++)
		if (!strchr("0123456789,-+", *p))
			return false;
	return true;
}

/* Splits at commas; `\,` is a comma in a value. */
int clair_options_add(struct clair_options *o, const char *text, char **error)
{
	autofree char *copy = strdup(text);
	char *p = copy;

	if (!copy)
		return -ENOMEM;
	while (*p) {
		char *word = p, *to = p;
		for (; *p; p++) {
			if (*p == '\\' && (p[1] == ',' || p[1] == '\\'))
				p++;
			else if (*p == ',' &&
				 !(p[1] >= '0' && p[1] <= '9' && in_ranks(word, to)))
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

	/* The library's 200 bytes a line are too few for paths. */
	ini_use_stack = false;
	ini_allow_realloc = true;
	ini_max_line = 1 << 20;
	ini_stop_on_first_error = true;
	struct stat st;
	if (stat(file, &st) == 0 && S_ISDIR(st.st_mode))
		return clair_bad(error, "config=%s: is a folder; it must be an INI file", file);
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
