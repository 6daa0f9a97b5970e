/* SPDX-License-Identifier: BSD-3-Clause */
/* CPython's seeds. Three times as dear as torch's: 1,247 serial steps a seed. */
#include "seed_search_internal.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "cleanup.h"
#include "python_random.h"

#define CHUNK (1u << 16) /* seeds that a thread takes at once */

struct search {
	const struct clair_seed_query *query;
	const struct kernel *kernel;
	uint32_t base[CLAIR_MT_SIZE];
	uint32_t entries; /* the most that a target needs */
	_Atomic uint64_t next;
	_Atomic bool ended;
	_Atomic int error;
	pthread_mutex_t lock;
	struct clair_seed_hit *hits; /* under lock */
	size_t room, count;
};

/* --- one seed, exactly ------------------------------------------------------------------ */

/* Entry I of the sample, after those before it: what is drawn is replaced by the last. */
static uint32_t next_entry(struct swaps *s, struct clair_mt *mt, uint32_t n, uint32_t i)
{
	uint32_t j = (uint32_t)clair_py_randbelow(mt, n - i);
	uint32_t last = *clair_swaps_place(s, n - i - 1), *at = clair_swaps_place(s, j);
	uint32_t entry = *at;

	*at = last;
	return entry;
}

int clair_python_prefix(uint32_t seed, uint32_t n, uint32_t count, uint32_t *entries)
{
	struct clair_mt mt;
	struct swaps s;

	int r = clair_swaps_init(&s, count);
	if (r < 0)
		return r;
	clair_py_seed(&mt, seed);
	for (uint32_t i = 0; i < count; i++)
		entries[i] = next_entry(&s, &mt, n, i);
	clair_swaps_finish(&s);
	return 0;
}

static bool is_open(const struct clair_seed_target *t, uint32_t entry, uint32_t number)
{
	const uint64_t *bits = t->first && number < CLAIR_SEED_FIRST ? t->first : t->opened;

	return bits[entry / 64] >> entry % 64 & 1;
}

static bool fits(const struct clair_seed_target *t, uint32_t seed, struct swaps *swaps)
{
	uint32_t entries = t->prefix < t->n ? t->prefix : t->n;
	struct clair_mt mt;
	bool all = true;

	clair_py_seed(&mt, seed);
	for (uint32_t i = 0; i < entries && all; i++)
		all = is_open(t, next_entry(swaps, &mt, t->n, i), i);
	clair_swaps_empty(swaps);
	return all && (!t->sure || t->sure(t->arg, t, seed));
}

/* --- many ----------------------------------------------------------------------------- */

/* By the outputs at hand, STEP apart: false when one of the first entries was not opened. */
static bool may_fit(const struct clair_seed_target *t, const uint32_t *out, unsigned step)
{
	uint32_t entry = 0, before = 0, n = t->n;

	for (unsigned i = 0; i < PYTHON_OUTPUTS && entry < t->prefix && entry < 2 && entry < n;
	     i++) {
		/* Of randbelow: as many bits as the bound has, what is not below it is
		 * drawn again. */
		uint32_t bound = n - entry;
		uint32_t j = out[i * step] >> __builtin_clz(bound);
		if (j >= bound)
			continue;
		/* The second may be the place of the first. */
		if (!is_open(t, entry && j == before ? n - 1 : j, entry))
			return false;
		before = j;
		entry++;
	}
	return true;
}

static void found(struct search *s, uint32_t seed, uint32_t target)
{
	autolock(&s->lock);
	if (s->count < s->room)
		s->hits[s->count] = (struct clair_seed_hit){ seed, target };
	s->count++;
	if (s->query->enough && s->count >= s->query->enough)
		atomic_store(&s->ended, true);
}

static void try_chunk(struct search *s, void *state, struct swaps *swaps, uint64_t begin,
		      uint64_t end)
{
	const struct clair_seed_query *q = s->query;
	unsigned step = s->kernel->python_seeds;
	uint32_t seeds[MOST_SEEDS], out[PYTHON_OUTPUTS * MOST_SEEDS];

	for (uint64_t at = begin; at < end; at += step) {
		unsigned count = end - at < step ? (unsigned)(end - at) : step;

		for (unsigned k = 0; k < step; k++)
			seeds[k] = (uint32_t)(at + k);
		s->kernel->python(seeds, s->base, state, out);
		for (unsigned k = 0; k < count; k++)
			for (uint32_t i = 0; i < q->count; i++)
				if (may_fit(&q->targets[i], out + k, step) &&
				    fits(&q->targets[i], seeds[k], swaps))
					found(s, seeds[k], i);
	}
}

static void *search_thread(void *arg)
{
	struct search *s = arg;
	const struct clair_seed_query *q = s->query;
	struct sched_param idle = { 0 };
	struct swaps swaps = { 0 };
	autofree void *state = aligned_alloc(64, (s->kernel->python_room + 63) / 64 * 64);

	/* Training must not notice. */
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &idle);
	if (!state || clair_swaps_init(&swaps, s->entries * 2) < 0) {
		atomic_store(&s->error, -ENOMEM);
		return NULL;
	}
	while (!atomic_load(&s->ended)) {
		uint64_t begin = atomic_fetch_add(&s->next, CHUNK);
		if (begin >= q->end)
			break;
		if (q->cancel && atomic_load(q->cancel)) {
			atomic_store(&s->error, -ECANCELED);
			break;
		}
		uint64_t end = begin + CHUNK < q->end ? begin + CHUNK : q->end;
		try_chunk(s, state, &swaps, begin, end);
		if (q->progress)
			atomic_fetch_add(q->progress, end - begin);
	}
	clair_swaps_finish(&swaps);
	return NULL;
}

static int check(const struct clair_seed_query *q)
{
	if (!q->threads || !q->count || q->end > 1ull << 32 || q->begin > q->end)
		return -EINVAL;
	for (size_t i = 0; i < q->count; i++) {
		const struct clair_seed_target *t = &q->targets[i];
		if (clair_seed_check(t) < 0 || t->skip || t->world != 1)
			return -EINVAL;
	}
	return 0;
}

int clair_python_search(const struct clair_seed_query *query, struct clair_seed_hit *hits,
			size_t room, size_t *count)
{
	const char *name;
	struct search s = { .query = query, .kernel = clair_seed_kernel(&name),
			    .next = query->begin, .lock = PTHREAD_MUTEX_INITIALIZER,
			    .hits = hits, .room = room };
	pthread_t threads[64];
	unsigned started = 0, wanted = query->threads < 64 ? query->threads : 64;
	struct clair_mt mt;

	int r = check(query);
	if (r < 0)
		return r;
	clair_mt_seed(&mt, 19650218);
	for (unsigned i = 0; i < CLAIR_MT_SIZE; i++)
		s.base[i] = mt.state[i];
	for (size_t i = 0; i < query->count; i++)
		if (query->targets[i].prefix > s.entries)
			s.entries = query->targets[i].prefix;
	while (started < wanted &&
	       !pthread_create(&threads[started], NULL, search_thread, &s))
		started++;
	r = started ? 0 : -EAGAIN;
	clair_seed_join(threads, started, query->cancel);
	if (r == 0)
		r = atomic_load(&s.error);
	clair_seed_sort_hits(hits, s.count < room ? s.count : room);
	*count = s.count;
	return r;
}
