/* SPDX-License-Identifier: BSD-3-Clause */
/* recipe_replay < TRACE: replays the opens of a recipe (tests/recipes) to discovery and learning
 * as a mount that is told nothing does, and says from when on they were predicted. A second
 * run with what the first one remembered follows. One line:
 * NUMBER CLASS NAME ok|MISS|FALSE known=OPENS predicted=PERCENT second=OPENS answer */
#include "recipe_trace.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "discover.h"
#include "learn.h"
#include "tracker.h"

/* As the mount does: how often it is looked whether the answer still holds. */
#define CHECK_OPENS 64
/* Opens from which on classes A, A+ and R must be known. */
#define EARLY_OPENS 600
#define SECOND_OPENS 100
/* How long all pauses of the readers may wait for the thinking threads, ns: with a seed among
 * 2^32 as long as the search takes, else so long that a search in vain is not waited for. */
#define PATIENCE_HIDDEN (100ll * 1000 * 1000 * 1000)
#define PATIENCE (5ll * 1000 * 1000 * 1000)
/* A pause that costs nothing; what one at the begin of an epoch may take in any case, ns. */
#define PAUSE (20ll * 1000 * 1000)
#define AT_BEGIN (400ll * 1000 * 1000)

struct follower {
	const struct recipe *recipe;
	const struct clair_catalog *catalog;
	struct recipe_source source;
	struct clair_discover *discover;
	struct clair_learn *learn;
	pthread_mutex_t lock;
	/* Under lock. */
	struct clair_stream *stream;
	struct clair_tracker *tracker;
	uint8_t *own; /* by id: in the stream */
	bool known, ending;
	unsigned answers;
	uint64_t opens, known_at; /* the opens before the first answer */
	uint64_t since;		  /* opens since the last answer */
	char answer[200];
	int64_t patience; /* ns */
};

/* --- answers ---------------------------------------------------------------------------------- */

/* lock */
static void drop_stream(struct follower *f)
{
	clair_tracker_free(f->tracker);
	clair_stream_free(f->stream);
	free(f->own);
	f->tracker = NULL;
	f->stream = NULL;
	f->own = NULL;
}

/* lock */
static int take_stream(struct follower *f, uint32_t folder, const struct clair_words *words,
		       const uint32_t *ids, size_t count, bool sure)
{
	struct clair_open_result result;
	char *error = NULL;
	uint32_t n;

	drop_stream(f);
	f->known = false;
	int r = clair_stream_new(f->catalog, folder, words, &f->stream, &error);
	if (r == 0 && !sure && clair_learn_knows_ranks(f->learn, words) &&
	    !clair_tracker_explains(f->stream, ids, count)) {
		if (getenv("RECIPE_VERBOSE"))
			fprintf(stderr, "# most opens say no: %s\n",
				clair_words_get(words, "sampler"));
		drop_stream(f);
		return -EDOM;
	}
	if (r == 0)
		r = clair_tracker_new(f->stream, &f->tracker);
	if (r < 0) {
		fprintf(stderr, "%s: an answer cannot be used: %s\n", f->recipe->name,
			error ? error : strerror(-r));
		free(error);
		return r;
	}
	const uint32_t *samples = clair_stream_samples(f->stream, &n);
	f->known = true;
	f->own = calloc(1, clair_catalog_count(f->catalog));
	for (uint32_t i = 0; i < n; i++)
		f->own[samples[i]] = 1;
	for (size_t i = 0; i < count; i++)
		if (f->own[ids[i]])
			clair_tracker_open(f->tracker, ids[i], clair_now_ns(), &result);
	return 0;
}

static void say_answer(struct follower *f, const struct clair_words *words)
{
	static const char *const keys[] = { "sampler", "of",   "index", "split", "seed",
					    "world",   "ranks", "skip", "batch", "workers" };
	size_t length = 0;

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		const char *value = clair_words_get(words, keys[i]);
		const char *name = value ? strrchr(value, '/') : NULL;
		if (value && length < sizeof f->answer)
			length += (size_t)snprintf(f->answer + length,
						   sizeof f->answer - length, "%s%s=%s",
						   length ? "," : "", keys[i],
						   name ? name + 1 : value);
	}
	if (getenv("RECIPE_VERBOSE"))
		fprintf(stderr, "# %llu opens: %s\n", (unsigned long long)f->opens, f->answer);
}

/* lock */
static bool take(struct follower *f, uint32_t folder, const struct clair_words *words,
		 const uint32_t *ids, size_t count, bool *ours)
{
	*ours = false;
	if (f->known || f->ending)
		return true;
	if (take_stream(f, folder, words, ids, count, false) < 0)
		return false;
	*ours = true;
	f->since = 0;
	if (!f->answers++)
		f->known_at = f->opens;
	say_answer(f, words);
	return true;
}

static bool by_seed(void *arg, uint32_t folder, const struct clair_words *words,
		    const uint32_t *ids, size_t count)
{
	struct follower *f = arg;
	struct clair_words all = { 0 };
	bool ours = false, good = false;

	if (clair_words_copy(&all, words) == 0 && clair_learn_set_ranks(f->learn, &all) == 0) {
		autolock(&f->lock);
		good = take(f, folder, &all, ids, count, &ours);
	}
	if (ours)
		clair_learn_settle(f->learn, folder, &all);
	clair_words_finish(&all);
	return good;
}

static bool by_learning(void *arg, uint32_t folder, const struct clair_words *words,
			const uint32_t *ids, size_t count)
{
	struct follower *f = arg;
	bool ours;

	autolock(&f->lock);
	take(f, folder, words, ids, count, &ours);
	if (ours)
		clair_discover_again(f->discover);
	return ours;
}

static bool more_ranks(void *arg, uint32_t folder, const struct clair_words *words,
		       const uint32_t *ids, size_t count)
{
	struct follower *f = arg;

	autolock(&f->lock);
	if (!f->known || f->ending ||
	    take_stream(f, folder, words, ids, count, true) < 0)
		return false;
	say_answer(f, words);
	return true;
}

/* --- a run -------------------------------------------------------------------------------------- */

static bool is_thinking(void)
{
	autoclosedir DIR *d = opendir("/proc/self/task");
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[300], text[300] = "";

		if (*e->d_name == '.' || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof path, "/proc/self/task/%s/stat", e->d_name);
		autofclose FILE *f = fopen(path, "re");
		size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
		const char *at = n ? strrchr(text, ')') : NULL;
		if (at && (at[2] == 'R' || at[2] == 'D'))
			return true;
	}
	return false;
}

/* The readers work at what they have read: nobody opens anything until all has been thought, or
 * for a while; the FIRST_OPENS of an epoch have theirs. */
static void pause_readers(struct follower *f, bool first_opens)
{
	int64_t begun = clair_now_ns(), limit = f->patience;
	unsigned calm = 0;

	if (first_opens && limit < AT_BEGIN)
		limit = AT_BEGIN;
	while (calm < 3 && clair_now_ns() - begun < limit) {
		usleep(700);
		calm = is_thinking() ? 0 : calm + 1;
	}
	if (clair_now_ns() - begun > PAUSE && limit == f->patience)
		f->patience -= clair_now_ns() - begun;
}

/* True: it was predicted. */
static bool open_file(struct follower *f, pid_t pid, uint32_t id)
{
	struct clair_open_result result = { .use = CLAIR_USE_UNPREDICTED };
	bool again = false, known;

	pthread_mutex_lock(&f->lock);
	f->opens++;
	known = f->known;
	if (known && f->own[id])
		clair_tracker_open(f->tracker, id, clair_now_ns(), &result);
	if (known && ++f->since % CHECK_OPENS == 0 && !clair_tracker_trusted(f->tracker))
		again = true;
	bool predicted = known && result.use != CLAIR_USE_UNPREDICTED;
	pthread_mutex_unlock(&f->lock);
	if (again && getenv("RECIPE_VERBOSE"))
		fprintf(stderr, "# %llu opens: it does not hold\n", (unsigned long long)f->opens);
	if (again) {
		clair_discover_again(f->discover);
		clair_learn_again(f->learn);
		pthread_mutex_lock(&f->lock);
		f->known = false;
		pthread_mutex_unlock(&f->lock);
	}
	clair_learn_open(f->learn, pid, id);
	if (!known || again)
		clair_discover_open(f->discover, pid, id);
	return predicted;
}

/* A process that does nothing, with a rank's environment. */
static pid_t start_reader(uint32_t world, uint32_t rank)
{
	char w[32], r[32], name[] = "sleep", seconds[] = "900";
	char *arguments[] = { name, seconds, NULL };
	char *environment[] = { w, r, NULL };
	pid_t pid = 0;

	snprintf(w, sizeof w, "WORLD_SIZE=%u", world);
	snprintf(r, sizeof r, "RANK=%u", rank);
	if (world < 2)
		environment[0] = NULL;
	if (posix_spawn(&pid, "/bin/sleep", NULL, NULL, arguments, environment))
		return 0;
	return pid;
}

static void change_readers(const struct recipe *recipe, pid_t *pids, bool start)
{
	for (size_t i = 0; i < recipe->reader_count; i++) {
		if (pids[i]) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, 0);
			pids[i] = 0;
		}
		if (start)
			pids[i] = start_reader(recipe->world, recipe->readers[i]);
	}
	usleep(40000); /* beyond a clock tick, in which starts are counted */
}

struct score {
	uint64_t counted, predicted;
};

/* LIMIT opens at most; stops once it is known when FIRST_ANSWER. */
static void run(struct follower *f, size_t limit, bool first_answer, struct score *score)
{
	const struct recipe *recipe = f->recipe;
	bool early = *recipe->kind == 'A' || *recipe->kind == 'R';
	autofree pid_t *pids = calloc(recipe->reader_count, sizeof *pids);
	size_t total = 0;

	for (size_t e = 0; e < recipe->epoch_count && total < limit; e++) {
		const struct recipe_epoch *epoch = &recipe->epochs[e];

		if (!e || !recipe->stay)
			change_readers(recipe, pids, true);
		for (size_t i = 0; i < epoch->count && total < limit; i++, total++) {
			/* While it is known there may be ranks to add. */
			if (i < 64 ? i % 4 == 0 : i < 800 ? i % 16 == 0 :
							    i % 200 == 0 && !f->known)
				pause_readers(f, e > 0 && i < 64);
			if (first_answer && f->known)
				goto out;
			bool good = open_file(f, pids[epoch->opens[i].reader],
					      recipe->ids[epoch->opens[i].file]);
			if (early ? total >= EARLY_OPENS : e > 0) {
				score->counted++;
				score->predicted += good;
			}
		}
		if (!f->known)
			pause_readers(f, false);
	}
out:
	change_readers(recipe, pids, false);
}

static int begin(struct follower *f, const struct recipe *recipe,
		 const struct clair_catalog *catalog, const char *memory, int source)
{
	static const struct clair_words none;

	*f = (struct follower){ .recipe = recipe, .catalog = catalog,
				.source = { catalog, source },
				.patience = recipe->hidden ? PATIENCE_HIDDEN : PATIENCE };
	pthread_mutex_init(&f->lock, NULL);
	struct clair_discover_config discover = { .catalog = catalog, .given = &none, .threads = 2,
						  .found = by_seed, .arg = f };
	struct clair_learn_config learn = { .catalog = catalog, .given = &none,
					    .memory = memory, .read = recipe_read,
					    .read_arg = &f->source, .threads = 2,
					    .found = by_learning, .ranks = more_ranks,
					    .arg = f };

	int r = clair_discover_new(&discover, &f->discover);
	return r == 0 ? clair_learn_new(&learn, &f->learn) : r;
}

static void end(struct follower *f)
{
	pthread_mutex_lock(&f->lock);
	f->ending = true;
	pthread_mutex_unlock(&f->lock);
	if (f->learn)
		clair_learn_save(f->learn, f->known && clair_tracker_trusted(f->tracker));
	clair_discover_free(f->discover);
	clair_learn_free(f->learn);
	drop_stream(f);
}

static int replay(const struct recipe *recipe, const struct clair_catalog *catalog,
		  const char *memory, int source)
{
	struct score score = { 0 }, second = { 0 };
	struct follower f, g;
	bool unpredictable = *recipe->kind == 'E';

	if (begin(&f, recipe, catalog, memory, source) < 0)
		return 2;
	run(&f, SIZE_MAX, false, &score);
	end(&f);
	if (begin(&g, recipe, catalog, memory, source) < 0)
		return 2;
	clair_learn_finish(g.learn); /* what is remembered has been read */
	run(&g, SECOND_OPENS + 60, true, &second);
	bool again = g.answers && g.known_at <= SECOND_OPENS;
	end(&g);

	double percent = score.counted ? 100.0 * (double)score.predicted / (double)score.counted : 0;
	const char *verdict = unpredictable ? (f.answers ? "FALSE" : "ok") :
					      (percent >= 99 ? "ok" : "MISS");
	char known[24] = "never", repeat[24] = "never";
	if (f.answers)
		snprintf(known, sizeof known, "%llu", (unsigned long long)f.known_at);
	if (g.answers)
		snprintf(repeat, sizeof repeat, "%llu", (unsigned long long)g.known_at);
	printf("%2u %-2s %-28s %-5s known=%-5s predicted=%.1f%% second=%s%s answers=%u %s\n",
	       recipe->number, recipe->kind, recipe->name, verdict, known, percent, repeat,
	       again ? "" : "!", f.answers, f.answers ? f.answer : "");
	return !strcmp(verdict, "ok") ? 0 : 1;
}

int main(void)
{
	struct recipe recipe = { 0 };
	struct clair_catalog *catalog = NULL;
	char top[] = "/tmp/clairfs-recipe-XXXXXX", memory[64], command[96];
	int status = 2;

	int r = recipe_parse(stdin, &recipe);
	if (r < 0 || !mkdtemp(top)) {
		fprintf(stderr, "the trace cannot be read: %s\n", strerror(r < 0 ? -r : errno));
		recipe_finish(&recipe);
		return 2;
	}
	snprintf(memory, sizeof memory, "%s/order.json", top);
	autoclose int source = recipe_make_tree(&recipe, top);
	if (source >= 0)
		r = clair_catalog_walk(source, 1, NULL, NULL, &catalog);
	if (source >= 0 && r == 0)
		r = recipe_find_files(&recipe, catalog);
	if (source < 0 || r < 0)
		fprintf(stderr, "%s: its files cannot be made\n", recipe.name);
	else
		status = replay(&recipe, catalog, memory, source);
	clair_catalog_free(catalog);
	recipe_finish(&recipe);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	if (system(command))
		fprintf(stderr, "%s is left behind\n", top);
	return status;
}
