/* SPDX-License-Identifier: BSD-3-Clause */
#include "seed_search.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "mt19937.h"

#define BATCH 64          /* seeds that a filter does at once */
#define CHUNK (1u << 18)  /* seeds that a thread takes at once */

/* Chains that the filters interleave. */
#define CHAINS 4

#define FILTER filter_plain
#define FILTER_VECTOR vector_plain
#define LANES 4
#include "seed_search_filter.h"

#ifdef __x86_64__
#pragma GCC push_options
#pragma GCC target("avx2")
#define FILTER filter_avx2
#define FILTER_VECTOR vector_avx2
#define LANES 8
#include "seed_search_filter.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#define FILTER filter_avx512
#define FILTER_VECTOR vector_avx512
#define LANES 16
#include "seed_search_filter.h"
#pragma GCC pop_options
#endif

typedef void filter_function(const uint32_t *restrict seeds, uint32_t output,
			     uint32_t *restrict out);

static filter_function *choose(const char **name)
{
	const char *limit = getenv("CLAIRFS_SIMD");

	if (!limit)
		limit = "avx512";
#ifdef __x86_64__
	if (!strcmp(limit, "avx512") && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512bw")) {
		*name = "avx512";
		return filter_avx512;
	}
	if (strcmp(limit, "scalar") && __builtin_cpu_supports("avx2")) {
		*name = "avx2";
		return filter_avx2;
	}
#endif
	*name = "scalar";
	return filter_plain;
}

const char *clair_seed_search_path(void)
{
	const char *name;

	choose(&name);
	return name;
}

/* --- one seed, exactly ------------------------------------------------------------------ */

/* The first entries of a permutation touch few places: those that were swapped are kept
 * aside. Open addressing, emptied by its own list. */
struct swaps {
	uint32_t *key, *value; /* key: place + 1 */
	uint32_t mask;
	uint32_t *used;
	uint32_t count;
};

static uint32_t *place_of(struct swaps *s, uint32_t at)
{
	uint32_t h = at * 2654435761u & s->mask;

	while (s->key[h] && s->key[h] != at + 1)
		h = (h + 1) & s->mask;
	if (!s->key[h]) {
		s->key[h] = at + 1;
		s->value[h] = at;
		s->used[s->count++] = h;
	}
	return &s->value[h];
}

static bool is_opened(const struct clair_seed_query *q, uint32_t sample)
{
	return q->opened[sample / 64] >> sample % 64 & 1;
}

static int swaps_init(struct swaps *s, uint32_t entries)
{
	uint32_t room = 64;

	while (room < entries * 4)
		room *= 2;
	s->key = calloc(room, sizeof *s->key);
	s->value = malloc(room * sizeof *s->value);
	s->used = malloc(room * sizeof *s->used);
	s->mask = room - 1;
	s->count = 0;
	return s->key && s->value && s->used ? 0 : -ENOMEM;
}

static void swaps_finish(struct swaps *s)
{
	free(s->key);
	free(s->value);
	free(s->used);
}

/* Entries of the permutation that must be known for the rank's prefix. */
static uint64_t entries_needed(const struct clair_seed_query *q)
{
	uint64_t entries = q->rank + (uint64_t)q->world * (q->prefix - 1) + 1;

	return entries < q->n ? entries : q->n;
}

static bool fits(const struct clair_seed_query *q, uint32_t seed, struct swaps *s)
{
	uint32_t entries = (uint32_t)entries_needed(q);
	struct clair_mt mt;
	bool all = true;

	clair_mt_seed(&mt, seed);
	clair_mt_skip(&mt, q->skip);
	for (uint32_t i = 0; i < entries && all; i++) {
		uint32_t z = i + 1 < q->n ? i + clair_mt_u32(&mt) % (q->n - i) : i;
		uint32_t at_i = *place_of(s, i), *at_z = place_of(s, z);
		uint32_t entry = *at_z;

		*at_z = at_i;
		if (i % q->world == q->rank)
			all = is_opened(q, entry);
	}
	while (s->count)
		s->key[s->used[--s->count]] = 0;
	return all;
}

static int check(const struct clair_seed_query *q)
{
	if (!q->n || !q->prefix || !q->world || q->rank >= q->world || !q->threads ||
	    q->end > 1ull << 32 || q->begin > q->end ||
	    q->rank + q->skip >= CLAIR_SEED_OUTPUTS ||
	    entries_needed(q) > CLAIR_SEED_PREFIX || q->rank >= q->n)
		return -EINVAL;
	return 0;
}

bool clair_seed_fits(const struct clair_seed_query *q, uint32_t seed)
{
	struct swaps s;
	bool yes = false;

	if (check(q) == 0 && swaps_init(&s, (uint32_t)entries_needed(q)) == 0) {
		yes = fits(q, seed, &s);
		swaps_finish(&s);
	}
	return yes;
}

/* --- many ----------------------------------------------------------------------------- */

struct search {
	const struct clair_seed_query *query;
	filter_function *filter;
	_Atomic uint64_t next;
	_Atomic int error;
	pthread_mutex_t lock;
	uint32_t *seeds; /* under lock */
	size_t room, count;
};

static void found(struct search *s, uint32_t seed)
{
	autolock(&s->lock);
	if (s->count < s->room)
		s->seeds[s->count] = seed;
	s->count++;
}

/* u % d for 32-bit numbers by two multiplications (Lemire, Kaser, Kurz 2019). */
static inline uint32_t fast_mod(uint32_t u, uint64_t inverse, uint32_t d)
{
	return (uint32_t)((unsigned __int128)(inverse * u) * d >> 64);
}

/* Seeds that have passed the look at one entry, collected until there are enough for the
 * vectors to look at the next. */
struct survivors {
	uint32_t seed[2 * BATCH];
	unsigned count;
};

/* Looks at entry number ENTRY of BATCH seeds; those whose place is opened go to TO. An entry
 * is its place, unless one of the few before it went there, too. */
static void look(struct search *s, const uint32_t *seeds, unsigned count, uint32_t entry,
		 struct survivors *to)
{
	const struct clair_seed_query *q = s->query;
	uint32_t d = q->n - entry, out[BATCH];
	uint64_t inverse = UINT64_MAX / d + 1;

	s->filter(seeds, entry + q->skip, out);
	for (unsigned k = 0; k < count; k++) {
		uint32_t z = d > 1 ? entry + fast_mod(out[k], inverse, d) : entry;
		to->seed[to->count] = seeds[k];
		/* The last entry draws nothing and says nothing. */
		to->count += d <= 1 || is_opened(q, z);
	}
}

/* The survivors of the first look: a second one, then exactly. */
static void look_closer(struct search *s, struct survivors *first, bool all,
			struct swaps *swaps)
{
	const struct clair_seed_query *q = s->query;
	uint32_t entry = q->rank + q->world;
	bool second = q->prefix > 1 && entry + q->skip < CLAIR_SEED_OUTPUTS && entry < q->n;

	while (first->count >= BATCH || (all && first->count)) {
		unsigned n = first->count < BATCH ? first->count : BATCH;
		struct survivors left = { .count = 0 };

		if (second)
			look(s, first->seed, n, entry, &left);
		for (unsigned k = 0; k < (second ? left.count : n); k++) {
			uint32_t seed = second ? left.seed[k] : first->seed[k];
			if (fits(q, seed, swaps))
				found(s, seed);
		}
		first->count -= n;
		memmove(first->seed, first->seed + n, first->count * sizeof *first->seed);
	}
}

static void try_chunk(struct search *s, struct swaps *swaps, uint64_t begin, uint64_t end)
{
	struct survivors first = { .count = 0 };
	uint32_t seeds[BATCH];

	for (uint64_t base = begin; base < end; base += BATCH) {
		unsigned n = end - base < BATCH ? (unsigned)(end - base) : BATCH;

		for (unsigned k = 0; k < BATCH; k++)
			seeds[k] = (uint32_t)(base + k);
		look(s, seeds, n, s->query->rank, &first);
		look_closer(s, &first, false, swaps);
	}
	look_closer(s, &first, true, swaps);
}

static void *search_thread(void *arg)
{
	struct search *s = arg;
	const struct clair_seed_query *q = s->query;
	struct sched_param idle = { 0 };
	struct swaps swaps;

	/* Training must not notice. */
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &idle);
	if (swaps_init(&swaps, (uint32_t)entries_needed(q)) < 0) {
		atomic_store(&s->error, -ENOMEM);
	} else {
		for (;;) {
			uint64_t begin = atomic_fetch_add(&s->next, CHUNK);
			if (begin >= q->end)
				break;
			if (q->cancel && atomic_load(q->cancel)) {
				atomic_store(&s->error, -ECANCELED);
				break;
			}
			uint64_t end = begin + CHUNK < q->end ? begin + CHUNK : q->end;
			try_chunk(s, &swaps, begin, end);
			if (q->progress)
				atomic_fetch_add(q->progress, end - begin);
		}
	}
	swaps_finish(&swaps);
	return NULL;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int clair_seed_search(const struct clair_seed_query *query, uint32_t *seeds, size_t room,
		      size_t *count)
{
	const char *name;
	struct search s = { .query = query, .filter = choose(&name), .next = query->begin,
			    .lock = PTHREAD_MUTEX_INITIALIZER, .seeds = seeds, .room = room };
	pthread_t threads[64];
	unsigned started = 0, wanted = query->threads < 64 ? query->threads : 64;

	int r = check(query);
	if (r < 0)
		return r;
	while (started < wanted &&
	       !pthread_create(&threads[started], NULL, search_thread, &s))
		started++;
	if (!started)
		return -EAGAIN;
	while (started)
		pthread_join(threads[--started], NULL);
	qsort(seeds, s.count < room ? s.count : room, sizeof *seeds, by_number);
	*count = s.count;
	return atomic_load(&s.error);
}

#define WALK_CHECK (1u << 20)

int clair_seed_walk(const struct clair_seed_query *query, uint32_t generator, uint64_t draws,
		    uint64_t *position)
{
	struct clair_seed_query q = *query;
	uint32_t hit = 0, seeds[BATCH];
	const char *name;
	struct search s = { .query = &q, .filter = choose(&name),
			    .lock = PTHREAD_MUTEX_INITIALIZER, .seeds = &hit, .room = 1 };
	struct swaps swaps = { 0 };
	struct clair_mt mt;

	q.begin = q.end = 0;
	q.threads = 1;
	int r = check(&q);
	if (r == 0)
		r = swaps_init(&swaps, (uint32_t)entries_needed(&q));
	clair_mt_seed(&mt, generator);
	clair_mt_skip(&mt, *position);
	for (uint64_t at = *position; r == 0 && at < draws && !s.count; at += BATCH) {
		struct survivors first = { .count = 0 };

		if (q.cancel && at % WALK_CHECK < BATCH && atomic_load(q.cancel))
			r = -ECANCELED;
		for (unsigned k = 0; k < BATCH; k++)
			seeds[k] = clair_mt_u32(&mt);
		look(&s, seeds, BATCH, q.rank, &first);
		look_closer(&s, &first, true, &swaps);
		for (unsigned k = 0; s.count && k < BATCH; k++) {
			if (seeds[k] == hit) {
				*position = at + k;
				break;
			}
		}
	}
	swaps_finish(&swaps);
	return r < 0 ? r : s.count ? 0 : -ENOENT;
}
