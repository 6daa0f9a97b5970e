/* SPDX-License-Identifier: BSD-3-Clause */
#include "learn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "clock.h"
#include "log.h"

/* Opens after which it is compared with an earlier run. */
static const unsigned recall_at[] = { 24, 32, 48, 64, 96, 128, 200, 400, 800 };
/* Opens of a pass after which its list is sought. */
static const unsigned try_at[] = { 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256 };
/* The most opens, the newest ones, that are compared with an earlier run. */
#define RECALL_MOST 96
/* Opens after which manifests and groups of files are looked for. */
#define PROBE_AT 48
/* A pass with fewer opens says nothing. */
#define SHORTEST 24
/* A validation of fewer files is not seen as one. */
#define SHORTEST_END 6
/* Opens from which on they are saved now and then, not at the end only. */
#define SAVE_AT 20000
/* Packed bytes after which opens are not kept any more when the order is known: an answer
 * that held for so long will hold. */
#define KNOWN_LIMIT (4u << 20)

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* --- opens -------------------------------------------------------------------------------------- */

static bool is_one_of(const unsigned *list, size_t count, uint64_t value)
{
	for (size_t i = 0; i < count; i++)
		if (list[i] == value)
			return true;
	return false;
}

static uint32_t start_count(const struct clair_opens *o)
{
	const struct clair_pass *p = clair_opens_newest(o);

	return (uint32_t)(p->count - (o->candidate != SIZE_MAX ? o->candidate : 0));
}

/* Whether there is something new to think about. lock */
static bool is_time(const struct clair_learn *l)
{
	return !l->settled &&
	       (is_one_of(recall_at, COUNT(recall_at), l->opens.total - l->begun) ||
		is_one_of(try_at, COUNT(try_at), start_count(&l->opens)));
}

/* What the thread's process is. lock */
static bool find_thread(struct clair_learn *l, pid_t tid, struct clair_process *who)
{
	for (unsigned i = 0; i < l->thread_count; i++) {
		if (l->threads[i].tid != tid)
			continue;
		*who = l->threads[i].process;
		return true;
	}
	return false;
}

static void keep_thread(struct clair_learn *l, pid_t tid, struct clair_process who)
{
	unsigned most = COUNT(l->threads);

	if (l->thread_count == most) {
		memmove(l->threads, l->threads + 1, (most - 1) * sizeof l->threads[0]);
		l->thread_count--;
	}
	unsigned at = l->thread_count++;
	l->threads[at].tid = tid;
	l->threads[at].process = who;
}

void clair_learn_open(struct clair_learn *l, pid_t tid, uint32_t id)
{
	uint64_t now = clair_ticks_now();
	struct clair_process who = { 0 };
	bool counts = false;

	pthread_mutex_lock(&l->lock);
	if (l->recording && tid > 0 && !find_thread(l, tid, &who)) {
		/* /proc is asked without the lock. */
		pthread_mutex_unlock(&l->lock);
		who = clair_process_of(tid);
		pthread_mutex_lock(&l->lock);
		keep_thread(l, tid, who);
		clair_learn_see_rank(l, &who);
	}
	if (l->recording) {
		uint64_t pass = clair_opens_newest(&l->opens)->number;

		counts = clair_opens_add(&l->opens, who, now, id);
		if (counts && is_time(l)) {
			l->wanted = true;
			pthread_cond_broadcast(&l->change);
		}
		/* Process ids may come again for others. */
		if (clair_opens_newest(&l->opens)->number != pass)
			l->thread_count = 0;
		if (l->settled && !l->answered_opens && l->opens.packed_size > KNOWN_LIMIT) {
			clair_opens_finish(&l->opens);
			l->recording = clair_opens_init(&l->opens, l->config.catalog) == 0;
			l->recording = false;
		}
	}
	bool probing = counts && !l->settled;
	pthread_mutex_unlock(&l->lock);
	if (probing)
		clair_learn_probes_open(l, tid, id);
}

static void settle(struct clair_learn *l, uint32_t folder, const struct clair_words *words,
		   bool of_opens)
{
	pthread_mutex_lock(&l->lock);
	l->settled = true;
	l->answered_opens = of_opens;
	clair_words_finish(&l->answer);
	if (!of_opens && clair_words_copy(&l->answer, words) == 0)
		l->answer_folder = folder;
	/* One may have come meanwhile. */
	l->ranks_due = true;
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	/* Whatever they search is in vain. */
	clair_learn_probes_again(l);
}

void clair_learn_settle(struct clair_learn *l, uint32_t folder,
			const struct clair_words *words)
{
	atomic_store(&l->cancel, true);
	settle(l, folder, words, false);
	/* A seed that holds for one epoch only will not come again. */
	if (l->memory_file && !clair_words_get(words, "epochs") &&
	    clair_remember_save(l->memory_file, l->config.catalog, folder, words) < 0)
		log_warning("%s: what was found is not remembered", l->memory_file);
}

void clair_learn_again(struct clair_learn *l)
{
	pthread_mutex_lock(&l->lock);
	l->settled = l->answered_opens = false;
	l->begun = l->opens.total;
	l->recording = true;
	l->generation++;
	pthread_mutex_unlock(&l->lock);
}

bool clair_learn_is_remembered(struct clair_learn *l, const struct clair_words *words)
{
	static const char *const keys[] = { "sampler", "index", "seed", "split", "skip" };

	autolock(&l->lock);
	if (!l->ready || !l->memory.words.count)
		return false;
	for (size_t i = 0; i < COUNT(keys); i++) {
		const char *a = clair_words_get(words, keys[i]);
		const char *b = clair_words_get(&l->memory.words, keys[i]);
		if (!a != !b || (a && strcmp(a, b)))
			return false;
	}
	return true;
}

/* --- thinking ------------------------------------------------------------------------------------ */

int clair_learn_copy_pass(const struct clair_pass *p, size_t count, struct clair_pass *out)
{
	*out = *p;
	out->count = out->room = count;
	out->ids = malloc((count + 1) * sizeof *out->ids);
	out->by = malloc(count + 1);
	out->readers = malloc((p->reader_count + 1) * sizeof *out->readers);
	if (!out->ids || !out->by || !out->readers)
		return -ENOMEM;
	memcpy(out->ids, p->ids, count * sizeof *out->ids);
	memcpy(out->by, p->by, count);
	memcpy(out->readers, p->readers, p->reader_count * sizeof *out->readers);
	if (count == p->count)
		return 0;
	for (unsigned r = 0; r < p->reader_count; r++)
		out->readers[r].count = 0;
	for (size_t i = 0; i < count; i++)
		out->readers[p->by[i]].count++;
	return 0;
}

void clair_learn_free_pass(struct clair_pass *p)
{
	free(p->ids);
	free(p->by);
	free(p->readers);
	*p = (struct clair_pass){ 0 };
}

/* Whether the files of START were read in the first COUNT opens of P. */
static bool has_files(const struct clair_pass *p, size_t count, const struct learn_start *start,
		      uint64_t *bits)
{
	uint32_t in = 0;

	for (size_t i = 0; i < count; i++)
		bits[p->ids[i] / 64] |= 1ull << p->ids[i] % 64;
	for (uint32_t i = 0; i < start->count; i++)
		in += bits[start->ids[i] / 64] >> start->ids[i] % 64 & 1;
	for (size_t i = 0; i < count; i++)
		bits[p->ids[i] / 64] = 0;
	return in >= start->count - start->count / 8;
}

/* How many opens of P are left when the end that it has in common with the pass before it is
 * taken away: a validation by the same process. */
static size_t without_end(const struct clair_opens *o, unsigned at, size_t count)
{
	const struct clair_pass *p = &o->passes[at], *before = at ? p - 1 : NULL;
	size_t same = 0;

	if (!before || p->reader_count > 1)
		return count;
	while (same < count && same < before->count &&
	       p->ids[count - 1 - same] == before->ids[before->count - 1 - same])
		same++;
	return same == count || same < SHORTEST_END ? count : count - same;
}

/* The pass of the same loader before the one that begins with START: a copy. lock */
static bool copy_before(struct clair_learn *l, const struct learn_start *start,
			struct clair_pass *out)
{
	const struct clair_opens *o = &l->opens;
	bool split = o->candidate != SIZE_MAX;
	autofree uint64_t *bits =
		calloc(clair_catalog_count(l->config.catalog) / 64 + 1, sizeof *bits);

	for (unsigned i = o->kept; bits && i-- > 0;) {
		const struct clair_pass *p = &o->passes[i];
		size_t count = i + 1 == o->kept ? (split ? o->candidate : 0) : p->count;

		if (count)
			count = without_end(o, i, count);
		if (p->drawn || count < SHORTEST || !has_files(p, count, start, bits))
			continue;
		if (clair_learn_copy_pass(p, count, out) == 0)
			return true;
		clair_learn_free_pass(out);
		return false;
	}
	return false;
}

void clair_learn_hand_over(struct clair_learn *l, uint32_t folder,
			   const struct clair_words *words, bool of_opens,
			   const struct clair_pass *before)
{
	struct clair_pass newest = { 0 };
	size_t count = before ? before->count : 0;

	pthread_mutex_lock(&l->lock);
	const struct clair_pass *p = clair_opens_newest(&l->opens);
	size_t skip = before && before->number == p->number ? before->count : 0;
	int r = l->settled ? -EALREADY : clair_learn_copy_pass(p, p->count, &newest);
	pthread_mutex_unlock(&l->lock);
	size_t fresh = r == 0 && newest.count > skip ? newest.count - skip : 0;
	autofree uint32_t *ids = malloc((count + fresh + 1) * sizeof *ids);
	if (r == 0 && ids) {
		if (count)
			memcpy(ids, before->ids, count * sizeof *ids);
		memcpy(ids + count, newest.ids + skip, fresh * sizeof *ids);
		if (l->config.found(l->config.arg, folder, words, ids, count + fresh)) {
			settle(l, folder, words, of_opens);
			if (!of_opens && l->memory_file &&
			    clair_remember_save(l->memory_file, l->config.catalog, folder,
						words) < 0)
				log_warning("%s: what was learnt is not remembered",
					    l->memory_file);
		}
	}
	clair_learn_free_pass(&newest);
}

/* An answer that did not hold: there may be more ranks here than had opened anything. */
static bool more_ranks(struct clair_learn *l, const uint32_t *ids, size_t count,
		       uint32_t *folder, struct clair_words *words)
{
	struct clair_words answer = { 0 };

	pthread_mutex_lock(&l->lock);
	int r = clair_words_copy(&answer, &l->answer);
	*folder = l->answer_folder;
	pthread_mutex_unlock(&l->lock);
	bool yes = r == 0 && clair_learn_more_ranks(l, &answer, *folder, ids, count, words);
	clair_words_finish(&answer);
	return yes;
}

/* Compares the newest opens with the earlier run. */
static bool recall(struct clair_learn *l)
{
	struct clair_words words = { 0 };
	uint32_t ids[RECALL_MOST], folder;
	size_t count = 0;
	bool of_opens;

	pthread_mutex_lock(&l->lock);
	const struct clair_pass *p = clair_opens_newest(&l->opens);
	uint64_t since = l->opens.total - l->begun;
	while (count < RECALL_MOST && count < p->count && count < since) {
		ids[count] = p->ids[p->count - 1 - count];
		count++;
	}
	pthread_mutex_unlock(&l->lock);
	bool yes = count >= recall_at[0] && more_ranks(l, ids, count, &folder, &words);
	if (!yes)
		clair_words_finish(&words);
	of_opens = false;
	if (!yes)
		yes = count >= recall_at[0] &&
		      clair_learn_recall(l, ids, count, &folder, &words, &of_opens);
	if (yes)
		clair_learn_hand_over(l, folder, &words, of_opens, NULL);
	clair_words_finish(&words);
	return yes;
}

/* Seeks the list of the pass before in the begin of this one. */
static void seek_list(struct clair_learn *l)
{
	struct clair_words words = { 0 };
	struct clair_pass before = { 0 };
	struct learn_start start;
	uint32_t folder;
	bool yes = false;

	pthread_mutex_lock(&l->lock);
	clair_learn_take_start(l, &start);
	bool due = start.count >= try_at[0];
	bool is_new = due && l->tried_pass != start.pass + 1;
	bool has = due && copy_before(l, &start, &before);
	pthread_mutex_unlock(&l->lock);
	if (has && is_new) {
		l->tried_pass = start.pass + 1;
		yes = clair_learn_try(l, &before, l->tries++, &start, &folder, &words);
	}
	if (has && !yes) /* more opens came meanwhile */
		yes = clair_learn_retry(l, &folder, &words);
	if (yes)
		clair_learn_hand_over(l, folder, &words, false, &before);
	clair_words_finish(&words);
	clair_learn_free_pass(&before);
}

static void think(struct clair_learn *l)
{
	pthread_mutex_lock(&l->lock);
	atomic_store(&l->cancel, l->stopping || l->settled);
	bool drawn = clair_opens_newest(&l->opens)->drawn;
	uint32_t world = l->world;
	uint64_t total = l->opens.total, begun = l->begun;
	pthread_mutex_unlock(&l->lock);
	if (recall(l))
		return;
	if (!drawn && total - begun >= PROBE_AT && !l->probed) {
		l->probed = true;
		clair_learn_probe(l);
	}
	if (!drawn && world <= 1)
		seek_list(l);
	/* The end may come without a warning. */
	if (total > SAVE_AT && total / 2 > l->saved)
		clair_learn_save(l, false);
}

static void *learn_thread(void *arg)
{
	struct clair_learn *l = arg;

	clair_learn_load(l);
	pthread_mutex_lock(&l->lock);
	l->ready = true;
	while (!l->stopping) {
		if (l->ranks_due && l->settled) {
			pthread_mutex_unlock(&l->lock);
			clair_learn_update_ranks(l);
			pthread_mutex_lock(&l->lock);
			continue;
		}
		if (!l->wanted || l->settled) {
			l->finishing = false;
			pthread_cond_broadcast(&l->change);
			uint64_t total = l->opens.total;
			if (l->settled || total == l->saved) {
				pthread_cond_wait(&l->change, &l->lock);
				continue;
			}
			struct timespec t = clair_deadline(CLAIR_NS_PER_S);
			bool quiet = pthread_cond_timedwait(&l->change, &l->lock, &t) ==
				     ETIMEDOUT;
			/* The end may come without time to save. */
			if (quiet && !l->settled && total == l->opens.total) {
				pthread_mutex_unlock(&l->lock);
				clair_learn_save(l, false);
				pthread_mutex_lock(&l->lock);
			}
			continue;
		}
		l->wanted = false;
		pthread_mutex_unlock(&l->lock);
		think(l);
		pthread_mutex_lock(&l->lock);
	}
	pthread_mutex_unlock(&l->lock);
	return NULL;
}

void clair_learn_finish(struct clair_learn *l)
{
	autolock(&l->lock);
	l->finishing = l->wanted = true;
	pthread_cond_broadcast(&l->change);
	while (l->finishing)
		pthread_cond_wait(&l->change, &l->lock);
}

/* --- questions -------------------------------------------------------------------------------------- */

void clair_learn_state(struct clair_learn *l, struct clair_learn_state *state)
{
	autolock(&l->lock);
	const struct clair_pass *p = clair_opens_newest(&l->opens);
	const struct clair_pass *before = l->opens.kept > 1 ? p - 1 : NULL;

	*state = l->state;
	state->opens = l->opens.total;
	state->passes = p->number + (p->count > 0);
	state->workers = p->reader_count && p->readers[0].process.pid ? p->reader_count : 0;
	if (l->settled)
		state->why = NULL;
	else if (l->opens.total < SHORTEST)
		state->why = "too few opens yet";
	else if (p->drawn || (before && before->drawn))
		state->why = "files are drawn with repetition, by no generator that is known";
	else if (state->passes < 2)
		state->why = "no known sampler fits; the data set order is learnt in the "
			     "first epoch";
	else
		state->why = "each file is read once an epoch, in an order that no known "
			     "sampler makes";
}

/* Copies what is packed, and the pass that is open. lock */
static int copy_opens(const struct clair_learn *l, struct clair_opens *opens,
		      struct clair_pass *newest)
{
	const struct clair_opens *o = &l->opens;

	*opens = (struct clair_opens){ .catalog = o->catalog, .packed_size = o->packed_size,
				       .pass_count = o->pass_count };
	opens->packed = malloc(o->packed_size + 1);
	opens->ends = malloc((o->pass_count + 1) * sizeof *opens->ends);
	if (!opens->packed || !opens->ends)
		return -ENOMEM;
	if (o->pass_count) {
		memcpy(opens->packed, o->packed, o->packed_size);
		memcpy(opens->ends, o->ends, o->pass_count * sizeof *opens->ends);
	}
	return clair_learn_copy_pass(clair_opens_newest(o), clair_opens_newest(o)->count, newest);
}

void clair_learn_save(struct clair_learn *l, bool trusted)
{
	struct clair_opens opens = { 0 };
	struct clair_pass newest = { 0 };

	if (!l->opens_file)
		return;
	autolock(&l->saving);
	pthread_mutex_lock(&l->lock);
	bool known = l->settled && trusted;
	uint64_t remembered = l->memory.opens ? l->memory.opens->opens : 0;
	uint64_t total = l->opens.total;
	/* A run that followed the earlier one, and not for longer, says nothing new; what
	 * was saved a moment ago need not be saved again. */
	bool no = !l->ready || total < SHORTEST || (known && !l->answered_opens) ||
		  (known && total <= remembered) || total - l->saved < total / 16;
	int r = no ? 0 : copy_opens(l, &opens, &newest);
	pthread_mutex_unlock(&l->lock);
	if (r == 0 && !no)
		r = clair_remember_save_opens(l->opens_file, &opens, &newest);
	if (r < 0)
		log_warning("%s: the opens are not remembered: %s", l->opens_file,
			    strerror(-r));
	else if (!no)
		l->saved = total;
	free(opens.packed);
	free(opens.ends);
	clair_learn_free_pass(&newest);
}

/* --- life ---------------------------------------------------------------------------------------------- */

/* The memory file's name with another ending. */
static char *beside(const char *memory, const char *ending)
{
	size_t n = strlen(memory);
	char *name;

	if (n > 5 && !strcmp(memory + n - 5, ".json"))
		n -= 5;
	return asprintf(&name, "%.*s%s", (int)n, memory, ending) < 0 ? NULL : name;
}

static int name_files(struct clair_learn *l, const char *memory)
{
	if (!memory)
		return 0;
	l->memory_file = strdup(memory);
	l->opens_file = beside(memory, ".opens");
	l->list_file = beside(memory, ".list");
	return l->memory_file && l->opens_file && l->list_file ? 0 : -ENOMEM;
}

static void finish(struct clair_learn *l)
{
	clair_learn_forget(l);
	clair_learn_unload(l);
	clair_opens_finish(&l->opens);
	clair_words_finish(&l->given);
	clair_words_finish(&l->answer);
	pthread_mutex_destroy(&l->lock);
	pthread_mutex_destroy(&l->saving);
	pthread_cond_destroy(&l->change);
	free(l->memory_file);
	free(l->opens_file);
	free(l->list_file);
	free(l);
}

int clair_learn_new(const struct clair_learn_config *config, struct clair_learn **out)
{
	struct clair_learn *l = calloc(1, sizeof *l);
	const char *world;

	if (!l)
		return -ENOMEM;
	l->config = *config;
	l->recording = true;
	pthread_mutex_init(&l->lock, NULL);
	pthread_mutex_init(&l->saving, NULL);
	clair_cond_init(&l->change);
	int r = clair_opens_init(&l->opens, config->catalog);
	if (r == 0 && config->given)
		r = clair_words_copy(&l->given, config->given);
	world = clair_words_get(&l->given, "world");
	l->world = world ? (uint32_t)strtoul(world, NULL, 10) : 0;
	l->given_world = world != NULL;
	if (r == 0)
		r = name_files(l, config->memory);
	if (r == 0)
		r = -pthread_create(&l->thread, NULL, learn_thread, l);
	if (r < 0) {
		finish(l);
		return r;
	}
	*out = l;
	return 0;
}

void clair_learn_free(struct clair_learn *l)
{
	if (!l)
		return;
	pthread_mutex_lock(&l->lock);
	l->stopping = true;
	atomic_store(&l->cancel, true);
	pthread_cond_broadcast(&l->change);
	pthread_mutex_unlock(&l->lock);
	pthread_setschedparam(l->thread, SCHED_OTHER, &(struct sched_param){ 0 });
	pthread_join(l->thread, NULL);
	clair_learn_probes_free(l);
	finish(l);
}
