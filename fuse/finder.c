/* SPDX-License-Identifier: BSD-3-Clause */
#include "finder.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "clock.h"
#include "discover.h"
#include "job.h"
#include "learn.h"
#include "log.h"
#include "mount.h"
#include "remember.h"
#include "tracker.h"

/* How often, in opens, it is looked whether what was found still holds. */
#define CHECK_OPENS 64
/* Where there may be more ranks, opens are answered for a while after the answer: only they say
 * who opens. At least so many, for at least so long. */
#define RANKS_OPENS 1024
#define RANKS_NS (20 * CLAIR_NS_PER_S)

struct clair_finder {
	struct clair_mount *mount;
	struct clair_discover *discover;
	struct clair_learn *learn;
	/* Only one answer at a time is made the stream. Before all other locks. */
	pthread_mutex_t answering;
	_Atomic bool found;
	_Atomic bool given; /* set while mounted: nothing is to be found any more */
	_Atomic uint32_t folder; /* of the stream that was found */
	_Atomic uint64_t opens;
	_Atomic int64_t found_ns; /* when; 0: opens need not be answered any more */
	_Atomic int64_t begun_ns; /* the first open since it looks */
	/* Of the answer that holds, when it was given. Under answering. */
	size_t took_opens;
	double took_s;
};

/* Those of the opened files that the stream has: a validation's are none of its. *KEPT of them,
 * or NULL. */
static uint32_t *keep_own(const struct clair_mount *m, const struct clair_stream *stream,
			  const uint32_t *ids, size_t count, size_t *kept)
{
	autofree uint8_t *own = calloc(1, clair_catalog_count(m->catalog));
	uint32_t *out = malloc((count + 1) * sizeof *out), n;
	const uint32_t *samples = clair_stream_samples(stream, &n);

	*kept = 0;
	for (uint32_t i = 0; own && i < n; i++)
		own[samples[i]] = 1;
	for (size_t i = 0; own && out && i < count; i++)
		if (own[ids[i]])
			out[(*kept)++] = ids[i];
	return out;
}

/* Makes an ANSWER the stream. -EDOM: most of the opens are not of its order, though it has the
 * ranks that read here; never when it is SURE. answering */
static int take_answer(struct clair_finder *f, uint32_t folder,
		       const struct clair_words *answer, const uint32_t *ids, size_t count,
		       bool sure)
{
	struct clair_mount *m = f->mount;
	struct clair_words words = { 0 };
	struct clair_stream *stream = NULL;
	char text[32], *error = NULL;
	autofree uint32_t *own = NULL;
	size_t own_count = 0;

	int r = clair_words_copy(&words, answer);
	snprintf(text, sizeof text, "%zu", f->took_opens);
	if (r == 0)
		r = clair_words_set(&words, "opens_to_find", text);
	snprintf(text, sizeof text, "%.3f", f->took_s);
	if (r == 0)
		r = clair_words_set(&words, "seconds_to_find", text);
	if (r == 0)
		r = clair_stream_new(m->catalog, folder, &words, &stream, &error);
	clair_words_finish(&words);
	if (r == 0 && !sure && clair_learn_knows_ranks(f->learn, answer) &&
	    !clair_tracker_explains(stream, ids, count)) {
		clair_stream_free(stream);
		return -EDOM;
	}
	if (r == 0)
		own = keep_own(m, stream, ids, count, &own_count);
	if (r == 0)
		r = clair_stage_set_stream(m->stage, stream);
	if (r < 0)
		log_warning("an order was found that cannot be used: %s",
			    error ? error : strerror(-r));
	else if (own)
		clair_stage_replay(m->stage, folder, own, own_count);
	free(error);
	return r;
}

/* From now on opens need not reach the daemon. Where folders cannot be watched they must; that
 * flag is set by the watch. */
static void need_no_opens(struct clair_finder *f)
{
	atomic_store(&f->found_ns, 0);
	if (!atomic_load(&f->mount->unwatched))
		atomic_store(&f->mount->answer_opens, false);
}

/* answering */
static void set_costs(struct clair_finder *f, size_t opens)
{
	int64_t begun = atomic_load(&f->begun_ns);

	f->took_opens = opens;
	f->took_s = begun ? (double)(clair_now_ns() - begun) / 1e9 : 0;
}

/* An answer was made the stream of FOLDER: its opens are watched from now on. answering */
static void hold(struct clair_finder *f, uint32_t folder)
{
	atomic_store(&f->folder, folder);
	atomic_store(&f->opens, 0);
	atomic_store(&f->found, true);
}

enum took { FAILED, OTHERS, OURS };

/* A thinking thread has an answer. OTHERS: the other one's was first. answering */
static enum took found(struct clair_finder *f, uint32_t folder, const struct clair_words *answer,
		  const uint32_t *ids, size_t count)
{
	struct clair_mount *m = f->mount;

	if (atomic_load(&f->found) || atomic_load(&f->given))
		return OTHERS;
	set_costs(f, count);
	if (take_answer(f, folder, answer, ids, count, false) < 0)
		return FAILED;
	hold(f, folder);
	const char *world = clair_words_get(answer, "world");
	if (world && strcmp(world, "1"))
		atomic_store(&f->found_ns, clair_now_ns());
	else
		need_no_opens(f);
	log_info("the order was found after %zu opens: %s over %s, seed %s", count,
		 clair_words_get(answer, "sampler"), clair_words_get(answer, "index"),
		 clair_words_get(answer, "seed") ? clair_words_get(answer, "seed") : "none");
	clair_job_found(m->job, folder, answer);
	return OURS;
}

void clair_finder_told(struct clair_finder *f, uint32_t folder, const struct clair_words *answer)
{
	if (!f)
		return;
	autolock(&f->answering);
	if (atomic_load(&f->found) || atomic_load(&f->given))
		return;
	set_costs(f, 0);
	if (take_answer(f, folder, answer, NULL, 0, true) < 0)
		return;
	hold(f, folder);
	need_no_opens(f);
	log_info("another node found the order: %s over %s",
		 clair_words_get(answer, "sampler"), clair_words_get(answer, "index"));
}

static bool found_by_seed(void *arg, uint32_t folder, const struct clair_words *answer,
			  const uint32_t *ids, size_t count)
{
	struct clair_finder *f = arg;
	struct clair_words words = { 0 };

	if (clair_words_copy(&words, answer) < 0)
		return false;
	if (clair_learn_is_remembered(f->learn, &words))
		clair_words_set(&words, "how", "remembered");
	if (clair_learn_set_ranks(f->learn, &words) < 0)
		log_warning("no memory for the local ranks of the order that was found");
	pthread_mutex_lock(&f->answering);
	enum took took = found(f, folder, &words, ids, count);
	pthread_mutex_unlock(&f->answering);
	if (took == OURS)
		clair_learn_settle(f->learn, folder, &words);
	clair_words_finish(&words);
	return took != FAILED;
}

static bool found_by_learning(void *arg, uint32_t folder, const struct clair_words *answer,
			      const uint32_t *ids, size_t count)
{
	struct clair_finder *f = arg;

	autolock(&f->answering);
	bool ours = found(f, folder, answer, ids, count) == OURS;
	/* Whatever it searches is in vain. */
	if (ours)
		clair_discover_again(f->discover);
	return ours;
}

/* More ranks of the job read here than had when the answer was given. */
static bool more_ranks(void *arg, uint32_t folder, const struct clair_words *answer,
		       const uint32_t *ids, size_t count)
{
	struct clair_finder *f = arg;

	autolock(&f->answering);
	if (!atomic_load(&f->found) || atomic_load(&f->given) ||
	    atomic_load(&f->folder) != folder ||
	    take_answer(f, folder, answer, ids, count, true) < 0)
		return false;
	log_info("the order has these ranks here: %s", clair_words_get(answer, "ranks"));
	return true;
}

/* A manifest, as the source has it. */
static int read_manifest(void *arg, uint32_t id, char **text, size_t *size)
{
	struct clair_finder *f = arg;
	struct clair_source_file *file;
	size_t room = clair_catalog_entry(f->mount->catalog, id)->size;

	int r = clair_source_open(f->mount->source, id, &file);
	if (r < 0)
		return r;
	/* Room for the source's aligned reads, and a NUL. */
	char *buffer = aligned_alloc(4096, (room + 4096) / 4096 * 4096 + 4096);
	ssize_t n = buffer ? clair_source_read(file, buffer, room, 0) : -ENOMEM;
	clair_source_close(file);
	if (n < 0) {
		free(buffer);
		return (int)n;
	}
	buffer[n] = '\0';
	*text = buffer;
	*size = (size_t)n;
	return 0;
}

static int start_thinking(struct clair_finder *f, const char *memory)
{
	struct clair_mount *m = f->mount;
	struct clair_learn_config learn = { .catalog = m->catalog, .given = &m->options->order,
					    .memory = memory, .read = read_manifest,
					    .read_arg = f,
					    .threads = m->options->discover_threads,
					    .found = found_by_learning,
					    .ranks = more_ranks, .arg = f };
	/* What is found is remembered by the learner. */
	struct clair_discover_config discover = { .catalog = m->catalog,
						  .given = &m->options->order,
						  .threads = m->options->discover_threads,
						  .found = found_by_seed, .arg = f };

	int r = clair_discover_new(&discover, &f->discover);
	return r == 0 ? clair_learn_new(&learn, &f->learn) : r;
}

int clair_finder_start(struct clair_mount *m, struct clair_finder **out)
{
	char memory[4200];
	bool given = clair_options_says_order(&m->options->order);

	*out = NULL;
	for (size_t i = 0; i < m->options->stream_count; i++)
		given = given || clair_options_says_order(&m->options->streams[i].words);
	if (given)
		return 0;
	struct clair_finder *f = calloc(1, sizeof *f);
	if (!f)
		return -ENOMEM;
	f->mount = m;
	/* Beside the first cache folder, where the next node's job looks, too. */
	bool remembers = false;
	if (m->options->cache_count)
		remembers = snprintf(memory, sizeof memory, "%s/order.json",
				     m->options->caches[0].path) < (int)sizeof memory;
	else
		remembers = clair_remember_path(m->catalog, memory, sizeof memory) == 0;
	pthread_mutex_init(&f->answering, NULL);
	int r = start_thinking(f, remembers ? memory : NULL);
	if (r < 0) {
		clair_finder_stop(f);
		return r;
	}
	atomic_store(&m->answer_opens, true);
	*out = f;
	return 0;
}

void clair_finder_given(struct clair_finder *f)
{
	if (!f)
		return;
	/* Not while an answer is being taken: what the user says comes last, and stays. */
	autolock(&f->answering);
	atomic_store(&f->given, true);
	need_no_opens(f);
}

void clair_finder_open(struct clair_finder *f, pid_t pid, uint32_t id)
{
	if (!f || atomic_load(&f->given))
		return;
	if (!atomic_load(&f->begun_ns))
		atomic_store(&f->begun_ns, clair_now_ns());
	int64_t found_ns = atomic_load(&f->found_ns);
	if (found_ns && atomic_load(&f->opens) >= RANKS_OPENS &&
	    clair_now_ns() - found_ns > RANKS_NS)
		need_no_opens(f);
	/* What was found does not hold any more: look again, by the watch's events. */
	if (atomic_load(&f->found) &&
	    atomic_fetch_add(&f->opens, 1) % CHECK_OPENS == CHECK_OPENS - 1 &&
	    !clair_stage_trusted(f->mount->stage, atomic_load(&f->folder))) {
		log_info("the opens do not follow the order that was found: looking again");
		clair_discover_again(f->discover);
		clair_learn_again(f->learn);
		atomic_store(&f->begun_ns, clair_now_ns());
		atomic_store(&f->found_ns, 0);
		atomic_store(&f->found, false);
	}
	clair_learn_open(f->learn, pid, id);
	if (!atomic_load(&f->found))
		clair_discover_open(f->discover, pid, id);
}

json_t *clair_finder_json(struct clair_finder *f)
{
	struct clair_learn_state learnt;
	double seconds;
	uint64_t opens;

	if (!f)
		return NULL;
	if (atomic_load(&f->given))
		return NULL;
	const char *state = clair_discover_state(f->discover, &seconds, &opens);
	clair_learn_state(f->learn, &learnt);
	bool known = atomic_load(&f->found);
	json_t *o = json_pack("{s:s, s:I, s:f, s:I, s:I}", "state", known ? "found" : state,
			      "opens", (json_int_t)(learnt.opens > opens ? learnt.opens : opens),
			      "seconds", seconds, "passes", (json_int_t)learnt.passes,
			      "workers", (json_int_t)learnt.workers);
	if (o && learnt.group > 1)
		json_object_set_new(o, "files_a_sample", json_integer(learnt.group));
	if (o && !known && learnt.why)
		json_object_set_new(o, "why", json_string(learnt.why));
	return o;
}

void clair_finder_stop(struct clair_finder *f)
{
	if (!f)
		return;
	/* No more answers: one thread's would be told to the other's, which may be gone. */
	clair_finder_given(f);
	if (f->discover && f->learn)
		clair_learn_save(f->learn, atomic_load(&f->found) &&
						   clair_stage_trusted(f->mount->stage,
								       atomic_load(&f->folder)));
	clair_discover_free(f->discover);
	clair_learn_free(f->learn);
	pthread_mutex_destroy(&f->answering);
	free(f);
}
