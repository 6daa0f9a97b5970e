/* SPDX-License-Identifier: BSD-3-Clause */
/* Policy "clairfs": one home a sample. All in the order of first use:
 * 1. which samples have a home at all: those that are read most; where the room ends among
 *    equals, every k-th of each node's, so that what is left for the PFS is spread over
 *    nodes and time;
 * 2. the first reader keeps it, up to its share of the job's bytes (again every k-th), or
 *    up to its capacity where the recipe ties samples to ranks;
 * 3. the others go to whoever reads them most often and has room in its share, then to
 *    whoever is the least full;
 * 4. what still fits somewhere after that goes there. */
#include "placement_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define AHEAD 16
#define LEVELS 256 /* of reads, see struct clair_reads */

typedef __int128 wide;

/* What becomes of a sample. */
enum state { LEFT, CHOSEN, SPILLED, PLACED };

/* What is looked at again and again, one after the other in memory. */
struct item {
	uint32_t node : 14; /* that reads it first */
	uint32_t count : 8; /* of reads */
	uint32_t own : 7;   /* of SELF's */
	uint32_t state : 2;
	uint32_t bound : 1; /* to its only reader */
};
static_assert(sizeof(struct item) == sizeof(uint32_t), "takes the place of WHEN");
static_assert(CLAIR_MAX_NODES <= 1 << 14, "struct item");

#define OWN_MAX 127
#define LARGE UINT32_MAX /* in place of a size: look it up */

/* Lets through NUM/DEN of the bytes that pass it, evenly (an error diffusion). */
struct sieve {
	uint64_t num, den; /* of all when NUM >= DEN */
	wide credit;       /* bytes * DEN */
};

struct job {
	const struct clair_placement_input *input;
	struct clair_placement *p;
	struct clair_placement_reads reads;
	struct item *items;    /* by place in the order; the memory of reads.when */
	uint32_t *sizes;       /* likewise, bytes */
	uint64_t largest;      /* capacity of any node */
	uint64_t *first;       /* by node: bytes of chosen samples that it reads first */
	uint64_t *bound;       /* by node: the same of those that it alone reads */
	uint64_t *quota;       /* by node: its share of the chosen bytes */
	struct sieve *sieves;  /* by node */
	struct sieve *ties;    /* by node: of those that it alone reads */
	uint16_t *heap;        /* nodes, the least full on top; keys may be out of date */
	uint64_t *level;       /* by node: the key, filled/capacity * 2^32 */
	uint32_t heap_count;
};

static bool passes(struct sieve *s, uint64_t size)
{
	if (s->num >= s->den)
		return true;
	s->credit += (wide)size * s->num;
	if (s->credit * 2 < (wide)size * s->den || !s->num)
		return false;
	s->credit -= (wide)size * s->den;
	return true;
}

/* Nodes do not leave out at the same time: each begins elsewhere within a period. */
static void start_sieve(struct sieve *s, uint32_t node, uint64_t num, uint64_t den,
			uint64_t typical)
{
	wide phase = (wide)(clair_placement_mix(node, 0) >> 32) - (1ll << 31);

	*s = (struct sieve){ .num = num, .den = den };
	s->credit = (phase * typical >> 32) * (wide)den;
}

static uint64_t size_of(const struct job *j, uint32_t i)
{
	return j->sizes[i] != LARGE ? j->sizes[i] :
				      clair_placement_size(j->input, j->reads.order[i]);
}

/* By number of reads: bytes and samples. */
struct levels {
	uint64_t bytes[LEVELS];
	uint64_t samples[LEVELS];
};

/* Read several times and always by one node. */
static bool has_one_reader(const struct clair_reads *x)
{
	bool one = x->count > 1;

	for (uint32_t k = 1; k < x->count && k < CLAIR_PLACEMENT_READERS; k++)
		one = one && x->node[k] == x->node[0];
	return one;
}

static void ask_for(const struct job *j, uint32_t id)
{
	__builtin_prefetch(&j->reads.of[id]);
	if (j->input->catalog)
		__builtin_prefetch(clair_catalog_entry(j->input->catalog, id));
	else
		__builtin_prefetch(&j->input->sizes[id]);
}

static void load_item(struct job *j, uint32_t i, struct levels *l)
{
	const struct clair_reads *x = &j->reads.of[j->reads.order[i]];
	uint64_t size = clair_placement_size(j->input, j->reads.order[i]);

	j->sizes[i] = size < LARGE ? (uint32_t)size : LARGE;
	j->items[i] = (struct item){ .node = x->node[0], .count = x->count,
				     .own = x->own < OWN_MAX ? x->own : OWN_MAX,
				     .state = LEFT, .bound = has_one_reader(x) };
	if (size <= j->largest) {
		l->bytes[x->count] += size;
		l->samples[x->count]++;
	}
}

/* A recipe ties samples to ranks if most have but one reader: chance gives a random order
 * some too (two nodes, two epochs: half of all), which are not bound then. */
static void load(struct job *j, struct levels *l)
{
	uint32_t i = 0;

	for (size_t s = 0; s < j->input->stream_count; s++) {
		const struct clair_placement_segment *segment = &j->reads.segments[s];
		uint32_t begin = i, single = 0;

		for (; i < segment->end; i++) {
			if (i + AHEAD < segment->end)
				ask_for(j, j->reads.order[i + AHEAD]);
			load_item(j, i, l);
			single += j->items[i].bound;
		}
		if (segment->walk != CLAIR_WALK_RANKS ||
		    single * 10ull < (i - begin) * 9ull)
			for (uint32_t k = begin; k < i; k++)
				j->items[k].bound = 0;
	}
}

/* --- 1 ---------------------------------------------------------------------------- */

/* The level at which ROOM bytes end when the highest are served first: all above it have
 * room, of it NUM bytes. */
static int last_level(const struct levels *l, int lowest, uint64_t room, uint64_t *num)
{
	int level = LEVELS - 1;

	for (; level > lowest && l->bytes[level] <= room; level--)
		room -= l->bytes[level];
	*num = room;
	return level;
}

static void choose(struct job *j, const struct levels *l)
{
	struct clair_placement *p = j->p;
	uint64_t num, size;

	uint32_t level = (uint32_t)last_level(l, 0, p->total, &num);
	uint64_t typical = l->samples[level] ? l->bytes[level] / l->samples[level] : 0;
	for (uint32_t node = 0; node < p->node_count; node++)
		start_sieve(&j->sieves[node], node, num, l->bytes[level], typical);
	for (uint32_t i = 0; i < j->reads.total; i++) {
		struct item *x = &j->items[i];

		if (x->count < level || (size = size_of(j, i)) > j->largest)
			continue;
		if (x->count == level && !passes(&j->sieves[x->node], size))
			continue;
		x->state = CHOSEN;
		(x->bound ? j->bound : j->first)[x->node] += size;
	}
}

/* --- 2 ---------------------------------------------------------------------------- */

static void share_out(struct job *j)
{
	struct clair_placement *p = j->p;
	uint64_t chosen = 0;

	for (uint32_t node = 0; node < p->node_count; node++)
		chosen += j->first[node] + j->bound[node];
	chosen = chosen < p->total ? chosen : p->total;
	for (uint32_t node = 0; node < p->node_count; node++) {
		wide share = (wide)p->capacity[node] * chosen;
		uint64_t quota = p->total ? (uint64_t)((share + p->total - 1) / p->total) : 0;
		uint64_t left = quota > j->bound[node] ? quota - j->bound[node] : 0;

		j->quota[node] = quota;
		start_sieve(&j->sieves[node], node, left, j->first[node], 0);
		start_sieve(&j->ties[node], node, p->capacity[node], j->bound[node], 0);
	}
}

static void put(struct job *j, uint32_t i, uint16_t node, uint64_t size)
{
	clair_placement_put(j->p, j->reads.order[i], node, size);
	j->items[i].state = PLACED;
}

static void keep_at_first_readers(struct job *j)
{
	for (uint32_t i = 0; i < j->reads.total; i++) {
		struct item *x = &j->items[i];

		if (x->state != CHOSEN)
			continue;
		uint16_t node = x->node;
		uint64_t size = size_of(j, i);
		if (passes(x->bound ? &j->ties[node] : &j->sieves[node], size) &&
		    clair_placement_fits(j->p, node, size))
			put(j, i, node, size);
		else
			x->state = SPILLED;
	}
}

/* --- 3 ---------------------------------------------------------------------------- */

static uint64_t fullness(const struct clair_placement *p, uint32_t node)
{
	return (uint64_t)(((wide)p->filled[node] << 32) / p->capacity[node]);
}

static bool is_above(const struct job *j, uint16_t a, uint16_t b)
{
	return j->level[a] < j->level[b] || (j->level[a] == j->level[b] && a < b);
}

static void sink(struct job *j, uint32_t at)
{
	uint16_t node = j->heap[at];

	for (;;) {
		uint32_t child = 2 * at + 1;
		if (child >= j->heap_count)
			break;
		if (child + 1 < j->heap_count &&
		    is_above(j, j->heap[child + 1], j->heap[child]))
			child++;
		if (!is_above(j, j->heap[child], node))
			break;
		j->heap[at] = j->heap[child];
		at = child;
	}
	j->heap[at] = node;
}

static void make_heap(struct job *j)
{
	for (uint32_t node = 0; node < j->p->node_count; node++) {
		if (!j->p->capacity[node])
			continue;
		j->level[node] = fullness(j->p, node);
		j->heap[j->heap_count++] = (uint16_t)node;
	}
	for (uint32_t i = j->heap_count / 2; i-- > 0;)
		sink(j, i);
}

/* The least full node. They only ever get fuller, so a key that is out of date is too low
 * and its node on top when it matters. */
static uint16_t least_full(struct job *j)
{
	if (!j->heap_count)
		return CLAIR_NO_NODE;
	for (;;) {
		uint16_t node = j->heap[0];
		uint64_t level = fullness(j->p, node);

		if (level == j->level[node])
			return node;
		j->level[node] = level;
		sink(j, 0);
	}
}

/* Of the readers that have room for it in their shares, the one that reads it most often,
 * of those the earliest. */
static uint16_t keenest_reader(const struct job *j, const struct clair_reads *x,
			       uint64_t size)
{
	uint32_t count = x->count < CLAIR_PLACEMENT_READERS ? x->count : CLAIR_PLACEMENT_READERS;
	uint32_t most = 0;
	uint16_t best = CLAIR_NO_NODE;

	for (uint32_t i = 0; i < count; i++) {
		uint16_t node = x->node[i];
		uint32_t times = 0;

		for (uint32_t k = 0; k < count; k++)
			times += x->node[k] == node;
		if (times > most && clair_placement_fits(j->p, node, size) &&
		    j->p->filled[node] + size <= j->quota[node]) {
			most = times;
			best = node;
		}
	}
	return best;
}

static void place_spilled(struct job *j)
{
	for (uint32_t i = 0; i < j->reads.total; i++) {
		if (j->items[i].state != SPILLED)
			continue;
		uint64_t size = size_of(j, i);
		uint16_t node = keenest_reader(j, &j->reads.of[j->reads.order[i]], size);
		if (node == CLAIR_NO_NODE)
			node = least_full(j);
		if (node != CLAIR_NO_NODE && clair_placement_fits(j->p, node, size))
			put(j, i, node, size);
	}
}

/* --- 4 ---------------------------------------------------------------------------- */

static uint16_t roomiest(const struct clair_placement *p, uint64_t *room)
{
	uint16_t best = 0;

	*room = 0;
	for (uint32_t node = 0; node < p->node_count; node++) {
		if (p->capacity[node] - p->filled[node] > *room) {
			*room = p->capacity[node] - p->filled[node];
			best = (uint16_t)node;
		}
	}
	return best;
}

static void fill_gaps(struct job *j)
{
	uint64_t room = j->largest; /* nobody has more */

	for (uint32_t i = 0; i < j->reads.total && room && j->heap_count; i++) {
		uint64_t size;

		if (j->items[i].state == PLACED || (size = size_of(j, i)) > room)
			continue;
		uint16_t node = least_full(j);
		if (!clair_placement_fits(j->p, node, size))
			node = roomiest(j->p, &room);
		if (clair_placement_fits(j->p, node, size))
			put(j, i, node, size);
	}
}

/* --- copies ------------------------------------------------------------------------ */

/* Worth a copy: what SELF reads and another keeps. 0 or the number of reads. */
static int copy_level(const struct job *j, uint32_t i)
{
	const struct item *x = &j->items[i];

	if (!x->own || x->state != PLACED ||
	    j->p->homes[j->reads.order[i]] == j->input->self)
		return 0;
	return (int)x->own;
}

/* Copies of those that SELF reads LOW to HIGH times, if SIEVE lets them through. */
static void copy_levels(struct job *j, int low, int high, struct sieve *sieve, uint64_t *room)
{
	for (uint32_t i = 0; i < j->reads.total; i++) {
		int own = copy_level(j, i);

		if (own < low || own > high)
			continue;
		uint64_t size = size_of(j, i);
		if (size > *room || !passes(sieve, size))
			continue;
		clair_placement_put_copy(j->p, j->reads.order[i]);
		*room -= size;
	}
}

/* SELF fills the room that is left with what it reads most often from others. */
static void copy_own(struct job *j)
{
	const struct clair_placement *p = j->p;
	uint32_t self = j->input->self;
	struct sieve all = { 0 }, some;
	struct levels l = { 0 };
	uint64_t num;

	if (self >= p->node_count || p->capacity[self] == p->filled[self])
		return;
	for (uint32_t i = 0; i < j->reads.total; i++) {
		int own = copy_level(j, i);
		if (own)
			l.bytes[own] += size_of(j, i);
	}
	uint64_t room = p->capacity[self] - p->filled[self];
	int level = last_level(&l, 1, room, &num);
	start_sieve(&some, self, num, l.bytes[level], 0);
	copy_levels(j, level + 1, LEVELS, &all, &room);
	copy_levels(j, level, level, &some, &room);
}

static void job_finish(struct job *j)
{
	clair_placement_reads_finish(&j->reads);
	free(j->sizes);
	free(j->first);
	free(j->bound);
	free(j->quota);
	free(j->sieves);
	free(j->ties);
	free(j->heap);
	free(j->level);
}

static int job_init(struct job *j)
{
	size_t nodes = j->p->node_count;

	for (size_t i = 0; i < nodes; i++)
		if (j->p->capacity[i] > j->largest)
			j->largest = j->p->capacity[i];
	j->first = calloc(nodes, sizeof *j->first);
	j->bound = calloc(nodes, sizeof *j->bound);
	j->quota = calloc(nodes, sizeof *j->quota);
	j->sieves = calloc(nodes, sizeof *j->sieves);
	j->ties = calloc(nodes, sizeof *j->ties);
	j->heap = calloc(nodes, sizeof *j->heap);
	j->level = calloc(nodes, sizeof *j->level);
	if (!j->first || !j->bound || !j->quota || !j->sieves || !j->ties ||
	    !j->heap || !j->level)
		return -ENOMEM;
	int r = clair_placement_reads_init(j->input, j->p, &j->reads);
	if (r < 0)
		return r;
	/* Reused: nobody asks for the time of a first read once the order is made. */
	j->items = (struct item *)(void *)j->reads.when;
	j->sizes = malloc((j->reads.total + 1ul) * sizeof *j->sizes);
	return j->sizes ? 0 : -ENOMEM;
}

static int place(const struct clair_placement_input *input, struct clair_placement **out)
{
	struct job j = { .input = input };
	struct levels l = { 0 };

	int r = clair_placement_new(input, &j.p);
	if (r < 0)
		return r;
	r = job_init(&j);
	if (r == 0) {
		load(&j, &l);
		choose(&j, &l);
		share_out(&j);
		keep_at_first_readers(&j);
		make_heap(&j);
		place_spilled(&j);
		fill_gaps(&j);
		copy_own(&j);
		*out = j.p;
	} else {
		clair_placement_free(j.p);
	}
	job_finish(&j);
	return r;
}

const struct clair_policy clair_policy_home = {
	.name = "clairfs",
	.help = "one home a sample in the whole job, its first reader if that has room",
	.place = place,
};
