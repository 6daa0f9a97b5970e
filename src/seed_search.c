/* SPDX-License-Identifier: BSD-3-Clause */
#include "seed_search_internal.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "clock.h"
#include "mt19937.h"

#define CHUNK (1u << 18) /* seeds that a thread takes at once */
#define SLOTS 8
/* Seeds that may be left over by the looks at the outputs at hand: a look at one exactly
 * costs as much as a hundred seeds. */
#define LEFT_DIGITS 3.3
/* What may be left over by the looks that are made for all seeds at once. */
#define LEFT_SHARE 0.02
#define MOST_LOOKS CLAIR_SEED_FIRST
#define RANK_LOOKS 2 /* of a rank in a larger world, at least */
/* An entry is its place, unless one of the E before it went there, too: one seed in n / E. More
 * than one seed in this is not passed over. */
#define PASSED_OVER 256
#define LAST_ENTRY (SPAN - 2)
/* Entries that a seed is looked at one by one for. */
#define MOST_CLOSER 64

/* Targets of one world and rank in one family. */
struct group {
	uint32_t world, rank;
	uint32_t prefix; /* the shortest of the targets' */
	unsigned looks;  /* entries of the rank that are looked at in vectors */
	uint8_t slots;
	uint32_t target[SLOTS]; /* by slot */
};

/* Targets that look at the same places: one n, one skip, up to SLOTS sets of samples. */
struct family {
	uint32_t n, skip;
	/* By sample: bit s when it is opened in set s: soon, at all. */
	uint8_t *first, *table;
	const uint64_t *opened[SLOTS], *soon[SLOTS];
	unsigned slots;
	struct group *groups;
	size_t count, room;
	uint32_t last;  /* entries below it are looked at in vectors */
	uint32_t exact; /* if it is not 0, repeats among them are seen */
	uint32_t known; /* entries below it have their outputs at hand */
	bool needed[SPAN];
	uint32_t reciprocal[SPAN]; /* 2^32 / (n - entry) */
};

struct search {
	const struct clair_seed_query *query;
	const struct kernel *kernel;
	struct family *families;
	size_t count;
	uint32_t from, to; /* outputs that are made */
	uint32_t entries;  /* the most that a target needs */
	_Atomic uint64_t next;
	_Atomic bool ended;
	_Atomic int error;
	pthread_mutex_t lock;
	struct clair_seed_hit *hits; /* under lock */
	size_t room, hit_count;
};

/* One thread's. */
struct scratch {
	uint32_t *out, *z, *open; /* rows: by output, by entry */
	struct swaps swaps;
};

/* --- families ------------------------------------------------------------------------------ */

static double density(const struct family *f, unsigned slot)
{
	uint32_t opened = 0;

	for (uint32_t i = 0; i < f->n; i += 64) {
		uint64_t bits = f->soon[slot][i / 64];
		if (f->n - i < 64)
			bits &= (1ull << (f->n - i)) - 1;
		opened += (uint32_t)__builtin_popcountll(bits);
	}
	return (double)opened / f->n;
}

static void fill_table(struct family *f, unsigned slot)
{
	for (uint32_t i = 0; i < f->n; i++) {
		f->table[i] |= (uint8_t)((f->opened[slot][i / 64] >> i % 64 & 1) << slot);
		f->first[i] |= (uint8_t)((f->soon[slot][i / 64] >> i % 64 & 1) << slot);
	}
}

/* How many outputs leave few enough seeds, without a larger world. */
static uint32_t outputs_for(const struct family *f)
{
	double most = 0;

	for (unsigned s = 0; s < f->slots; s++)
		most = fmax(most, density(f, s));
	if (most <= 0)
		return 1;
	double looks = most < 0.99 ? (LEFT_DIGITS + log10(f->slots)) / -log10(most) : 12;
	return looks < 2 ? 2 : looks > 12 ? 12 : (uint32_t)ceil(looks);
}

static int slot_of(struct family *f, const struct clair_seed_target *t)
{
	const uint64_t *soon = t->first ? t->first : t->opened;

	for (unsigned s = 0; s < f->slots; s++)
		if (f->opened[s] == t->opened && f->soon[s] == soon)
			return (int)s;
	if (f->slots == SLOTS)
		return -1;
	f->opened[f->slots] = t->opened;
	f->soon[f->slots] = soon;
	fill_table(f, f->slots);
	return (int)f->slots++;
}

static struct group *group_of(struct family *f, const struct clair_seed_target *t)
{
	for (size_t i = 0; i < f->count; i++)
		if (f->groups[i].world == t->world && f->groups[i].rank == t->rank)
			return &f->groups[i];
	if (f->count == f->room) {
		size_t room = f->room ? f->room * 2 : 8;
		struct group *groups = realloc(f->groups, room * sizeof *groups);
		if (!groups)
			return NULL;
		f->groups = groups;
		f->room = room;
	}
	f->groups[f->count] = (struct group){ .world = t->world, .rank = t->rank,
					      .prefix = UINT32_MAX };
	return &f->groups[f->count++];
}

static struct family *family_new(struct search *s, const struct clair_seed_target *t)
{
	struct family *f = &s->families[s->count];

	*f = (struct family){ .n = t->n, .skip = t->skip, .first = calloc(t->n + 4ul, 1),
			      .table = calloc(t->n + 4ul, 1) };
	s->count++;
	return f->first && f->table ? f : NULL;
}

static int add_target(struct search *s, uint32_t number)
{
	const struct clair_seed_target *t = &s->query->targets[number];
	int slot = -1;
	size_t i = 0;

	for (; i < s->count && slot < 0; i++)
		if (s->families[i].n == t->n && s->families[i].skip == t->skip)
			slot = slot_of(&s->families[i], t);
	struct family *f = slot >= 0 ? &s->families[i - 1] : family_new(s, t);
	if (f && slot < 0)
		slot = slot_of(f, t);
	struct group *g = f ? group_of(f, t) : NULL;
	if (!g)
		return -ENOMEM;
	/* The same guess twice: the first one stands for both. */
	if (!(g->slots >> slot & 1))
		g->target[slot] = number;
	g->slots |= (uint8_t)(1u << slot);
	if (t->prefix < g->prefix)
		g->prefix = t->prefix;
	if (clair_seed_entries(t) > s->entries)
		s->entries = (uint32_t)clair_seed_entries(t);
	return 0;
}

static unsigned looks_for(const struct family *f, const struct group *g)
{
	double passed = 0;

	for (unsigned s = 0; s < f->slots; s++)
		if (g->slots >> s & 1)
			passed += density(f, s);
	double looks = passed < 0.5 ? ceil(log10(LEFT_SHARE) / log10(passed + 1e-9)) :
				      MOST_LOOKS;
	looks = fmin(fmax(looks, g->world > 1 ? RANK_LOOKS : 1), MOST_LOOKS);
	return looks < g->prefix ? (unsigned)looks : g->prefix;
}

/* What has to be computed for F's groups. */
static void plan(struct search *s, struct family *f)
{
	/* The last entry draws nothing. */
	uint32_t most = f->n - 1 < LAST_ENTRY ? f->n - 1 : LAST_ENTRY;

	for (size_t i = 0; i < f->count; i++) {
		struct group *g = &f->groups[i];
		unsigned looks = looks_for(f, g);
		for (unsigned k = 0; k < looks; k++) {
			uint64_t entry = g->rank + (uint64_t)k * g->world;
			if (entry >= most || f->skip + entry >= LAST_ENTRY)
				break;
			f->needed[entry] = true;
			g->looks = k + 1;
			if (entry + 1 > f->last)
				f->last = (uint32_t)entry + 1;
		}
	}
	bool likely = f->last <= 4 || (uint64_t)f->last * PASSED_OVER > f->n;
	f->exact = likely && f->last <= MOST_CLOSER ? f->last : 0;
	uint32_t at_hand = outputs_for(f);
	if (at_hand < f->last)
		at_hand = f->last;
	f->known = at_hand < most ? at_hand : most;
	if (f->skip + f->known > s->to)
		s->to = f->skip + f->known;
	for (uint32_t e = 0; e < f->last; e++)
		f->reciprocal[e] = (uint32_t)((1ull << 32) / (f->n - e));
}

static void search_finish(struct search *s)
{
	for (size_t i = 0; i < s->count; i++) {
		free(s->families[i].first);
		free(s->families[i].table);
		free(s->families[i].groups);
	}
	free(s->families);
}

static int search_init(struct search *s, const struct clair_seed_query *q)
{
	const char *name;
	uint32_t lowest = UINT32_MAX;
	int r = 0;

	*s = (struct search){ .query = q, .kernel = clair_seed_kernel(&name),
			      .lock = PTHREAD_MUTEX_INITIALIZER };
	for (size_t i = 0; i < q->count && r == 0; i++) {
		r = clair_seed_check(&q->targets[i]);
		if (q->targets[i].rank < lowest)
			lowest = q->targets[i].rank;
	}
	if (r < 0 || !q->count)
		return -EINVAL;
	s->families = calloc(q->count, sizeof *s->families);
	r = s->families ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < q->count && r == 0; i++)
		r = add_target(s, i);
	for (size_t i = 0; i < s->count && r == 0; i++)
		plan(s, &s->families[i]);
	/* Entries that are far out stand without those before them. */
	s->from = lowest > MOST_CLOSER / 2 ? lowest : 0;
	if (r < 0)
		search_finish(s);
	return r;
}

static void scratch_finish(struct scratch *x)
{
	free(x->out);
	free(x->z);
	free(x->open);
	clair_swaps_finish(&x->swaps);
}

static int scratch_init(const struct search *s, struct scratch *x)
{
	size_t row = s->kernel->seeds, rows = s->to + 1;

	*x = (struct scratch){ .out = malloc(rows * row * sizeof *x->out),
			       .z = malloc(rows * row * sizeof *x->z),
			       .open = calloc(rows, row * sizeof *x->open) };
	int r = x->out && x->z && x->open ? 0 : -ENOMEM;
	if (r == 0)
		r = clair_swaps_init(&x->swaps, s->entries);
	if (r < 0)
		scratch_finish(x);
	return r;
}

/* --- looking ------------------------------------------------------------------------------- */

static void found(struct search *s, uint32_t seed, uint32_t target)
{
	autolock(&s->lock);
	if (s->hit_count < s->room)
		s->hits[s->hit_count] = (struct clair_seed_hit){ seed, target };
	s->hit_count++;
	if (s->query->enough && s->hit_count >= s->query->enough)
		atomic_store(&s->ended, true);
}

/* The sets of ALIVE that have all entries of the rank whose outputs are at hand: seed number
 * K of a kernel's. */
static unsigned look_closer(const struct search *s, const struct family *f,
			    const struct group *g, const uint32_t *out, unsigned k,
			    unsigned alive)
{
	uint32_t place[SPAN], content[SPAN], moved = 0;

	if (s->from || f->known > MOST_CLOSER)
		return alive;
	for (uint32_t i = 0; i < f->known && alive; i++) {
		uint32_t z = i + out[(f->skip + i) * s->kernel->seeds + k] % (f->n - i);
		uint32_t at_i = i, at_z = z, where = moved;
		for (uint32_t m = 0; m < moved; m++) {
			if (place[m] == i)
				at_i = content[m];
			if (place[m] == z) {
				at_z = content[m];
				where = m;
			}
		}
		place[where] = z;
		content[where] = at_i;
		moved += where == moved;
		if (i % g->world == g->rank && i / g->world < g->prefix)
			alive &= i / g->world < CLAIR_SEED_FIRST ? f->first[at_z] :
								   f->table[at_z];
	}
	return alive;
}

static void look_at(struct search *s, const struct family *f, const struct group *g,
		    struct scratch *x, const uint32_t *seeds, unsigned k, unsigned alive)
{
	alive = look_closer(s, f, g, x->out, k, alive);
	for (; alive; alive &= alive - 1) {
		uint32_t target = g->target[__builtin_ctz(alive)];
		if (clair_seed_fits_with(&s->query->targets[target], seeds[k], &x->swaps))
			found(s, seeds[k], target);
	}
}

/* Which sets have the entries that F needs, for each seed: rows of x->open. */
static void look(const struct search *s, const struct family *f, struct scratch *x)
{
	const struct kernel *kernel = s->kernel;
	unsigned row = kernel->seeds, exact = s->from ? 0 : f->exact;

	for (uint32_t e = s->from; e < f->last; e++) {
		const uint32_t *out = x->out + (f->skip + e - s->from) * row;
		uint32_t *z = x->z + e * row, *open = x->open + e * row;

		if (f->needed[e] || e < exact)
			kernel->places(out, e, f->n - e, f->reciprocal[e], z);
		if (!f->needed[e])
			continue;
		kernel->lookup(f->first, z, open);
		/* Where one before it went there, too, look_closer must say. */
		for (uint32_t i = 0; e < exact && i < e; i++)
			kernel->repeats(z, x->z + i * row, open);
	}
}

static void try_group(struct search *s, const struct family *f, const struct group *g,
		      struct scratch *x, const uint32_t *seeds, unsigned count)
{
	unsigned row = s->kernel->seeds;
	uint32_t alive[MOST_SEEDS];

	if (!g->looks) /* a handful of samples */
		for (unsigned k = 0; k < row; k++)
			alive[k] = g->slots;
	else if (!s->kernel->common(x->open + g->rank * row, (size_t)g->world * row, g->looks,
				    g->slots, alive))
		return;
	for (unsigned k = 0; k < count; k++)
		if (alive[k])
			look_at(s, f, g, x, seeds, k, alive[k]);
}

/* SEEDS has room for as many as the kernel does at once; COUNT of them matter. */
static void try_block(struct search *s, struct scratch *x, const uint32_t *seeds,
		      unsigned count)
{
	s->kernel->outputs(seeds, s->from, s->to, x->out);
	for (size_t i = 0; i < s->count; i++) {
		const struct family *f = &s->families[i];
		look(s, f, x);
		for (size_t k = 0; k < f->count; k++)
			try_group(s, f, &f->groups[k], x, seeds, count);
	}
}

static void try_chunk(struct search *s, struct scratch *x, uint64_t begin, uint64_t end)
{
	unsigned step = s->kernel->seeds;
	uint32_t seeds[MOST_SEEDS];

	for (uint64_t base = begin; base < end; base += step) {
		for (unsigned k = 0; k < step; k++)
			seeds[k] = (uint32_t)(base + k);
		try_block(s, x, seeds, end - base < step ? (unsigned)(end - base) : step);
	}
}

#define JOIN_NS (20 * CLAIR_NS_PER_MS)

/* --- threads ------------------------------------------------------------------------------- */

static void *search_thread(void *arg)
{
	struct search *s = arg;
	const struct clair_seed_query *q = s->query;
	struct sched_param idle = { 0 };
	struct scratch scratch;

	/* Training must not notice. */
	pthread_setschedparam(pthread_self(), SCHED_IDLE, &idle);
	if (scratch_init(s, &scratch) < 0) {
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
		try_chunk(s, &scratch, begin, end);
		if (q->progress)
			atomic_fetch_add(q->progress, end - begin);
	}
	scratch_finish(&scratch);
	return NULL;
}

void clair_seed_join(pthread_t *threads, unsigned count, const _Atomic bool *cancel)
{
	struct sched_param none = { 0 };
	bool raised = false;

	while (count) {
		struct timespec t;
		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += JOIN_NS;
		if (t.tv_nsec >= CLAIR_NS_PER_S) {
			t.tv_nsec -= CLAIR_NS_PER_S;
			t.tv_sec++;
		}
		if (pthread_timedjoin_np(threads[count - 1], NULL, &t) == 0) {
			count--;
			continue;
		}
		for (unsigned i = 0; !raised && cancel && atomic_load(cancel) && i < count; i++)
			pthread_setschedparam(threads[i], SCHED_OTHER, &none);
		raised = cancel && atomic_load(cancel);
	}
}

static int by_number(const void *a, const void *b)
{
	const struct clair_seed_hit *x = a, *y = b;

	if (x->seed != y->seed)
		return x->seed < y->seed ? -1 : 1;
	return x->target < y->target ? -1 : x->target > y->target;
}

void clair_seed_sort_hits(struct clair_seed_hit *hits, size_t count)
{
	qsort(hits, count, sizeof *hits, by_number);
}

int clair_seed_search(const struct clair_seed_query *query, struct clair_seed_hit *hits,
		      size_t room, size_t *count)
{
	pthread_t threads[64];
	unsigned started = 0, wanted = query->threads < 64 ? query->threads : 64;
	struct search s;

	if (!query->threads || query->end > 1ull << 32 || query->begin > query->end)
		return -EINVAL;
	int r = search_init(&s, query);
	if (r < 0)
		return r;
	s.hits = hits;
	s.room = room;
	atomic_store(&s.next, query->begin);
	while (started < wanted &&
	       !pthread_create(&threads[started], NULL, search_thread, &s))
		started++;
	r = started ? 0 : -EAGAIN;
	clair_seed_join(threads, started, query->cancel);
	if (r == 0)
		r = atomic_load(&s.error);
	clair_seed_sort_hits(hits, s.hit_count < room ? s.hit_count : room);
	*count = s.hit_count;
	search_finish(&s);
	return r;
}

#define WALK_CHECK (1u << 20)

static int walk(struct search *s, struct scratch *x, struct clair_mt *mt,
		const struct clair_seed_span *span, uint64_t *position,
		const struct clair_seed_hit *hit)
{
	_Atomic bool *cancel = s->query->cancel;
	unsigned step = s->kernel->seeds;
	uint32_t seeds[MOST_SEEDS] = { 0 };

	for (uint64_t at = span->begin; at < span->end; at += step) {
		unsigned count = span->end - at < step ? (unsigned)(span->end - at) : step;

		if (cancel && at % WALK_CHECK < step && atomic_load(cancel))
			return -ECANCELED;
		for (unsigned k = 0; k < count; k++)
			seeds[k] = clair_mt_u32(mt);
		try_block(s, x, seeds, count);
		for (unsigned k = 0; s->hit_count && k < count; k++) {
			if (seeds[k] == hit->seed) {
				*position = at + k;
				return 0;
			}
		}
	}
	return -ENOENT;
}

int clair_seed_walk(const struct clair_seed_query *query, uint32_t generator,
		    const struct clair_seed_span *spans, size_t count, uint64_t *position,
		    struct clair_seed_hit *hit)
{
	struct scratch scratch;
	struct clair_mt mt;
	struct search s;

	int r = search_init(&s, query);
	if (r < 0)
		return r;
	s.hits = hit;
	s.room = 1;
	r = scratch_init(&s, &scratch);
	if (r == 0) {
		clair_mt_seed(&mt, generator);
		r = -ENOENT;
		for (size_t i = 0; i < count && r == -ENOENT; i++) {
			clair_mt_skip(&mt, spans[i].begin - (i ? spans[i - 1].end : 0));
			r = walk(&s, &scratch, &mt, &spans[i], position, hit);
		}
		scratch_finish(&scratch);
	}
	search_finish(&s);
	return r;
}
