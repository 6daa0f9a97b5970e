/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SEED_SEARCH_H
#define CLAIR_SEED_SEARCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which 32-bit seeds of torch's generator make a permutation whose first entries were all
 * among the samples opened so far. Every seed of a range is tried, in one pass for all
 * guesses about what was permuted: seeding the generator costs as much as hundreds of
 * looks at its outputs. AVX-512, AVX2 or plain code, chosen at run time. */

/* One guess. For a rank in a larger world one seed in 256 may be passed over by the quick look
 * at the first entries, when n is not much larger than the world. */
struct clair_seed_target {
	uint32_t n;           /* samples, in [1, 2^31] */
	uint32_t world, rank; /* the rank's list: entries rank, rank + world, … */
	uint32_t skip;        /* u32 drawn before the permutation: 0, 2 (explicit generator) */
	uint32_t prefix;      /* entries of the rank that must all be opened, >= 1 */
	const uint64_t *opened; /* a bit a sample; targets may share it */
	/* Or NULL: where the first CLAIR_SEED_FIRST entries of the rank must be, a part of
	 * OPENED. The smaller, the faster is the search. */
	const uint64_t *first;
	/* What else must hold of a seed, or NULL. Any thread. */
	bool (*sure)(void *arg, const struct clair_seed_target *target, uint32_t seed);
	void *arg;
};

struct clair_seed_query {
	const struct clair_seed_target *targets;
	size_t count;
	uint64_t begin, end; /* seeds, [begin, end), at most 2^32 */
	unsigned threads;    /* >= 1; they run at the lowest priority */
	size_t enough;       /* end soon after so many hits; 0: never */
	_Atomic bool *cancel; /* or NULL: looked at now and then */
	_Atomic uint64_t *progress; /* or NULL: seeds done */
};

struct clair_seed_hit {
	uint32_t seed;
	uint32_t target; /* number in the query */
};

/* Output number (rank + skip) is the first one needed; it must be below this. */
#define CLAIR_SEED_OUTPUTS 220
/* The longest prefix that is looked at: entries of the whole permutation. */
#define CLAIR_SEED_PREFIX 8192
#define CLAIR_SEED_FIRST 3

/* The hits, by seed, then target, at most ROOM of them; *COUNT may be larger. 0, -EINVAL (a
 * target asks for more than the limits above), -ECANCELED, -ENOMEM. */
int clair_seed_search(const struct clair_seed_query *query, struct clair_seed_hit *hits,
		      size_t room, size_t *count);
/* Draws [begin, end) of a generator, from 0. */
struct clair_seed_span {
	uint64_t begin, end;
};
/* Takes u32 of the generator seeded GENERATOR as seeds, one after the other: RandomSampler's
 * epochs draw theirs from torch's default generator. SPANS: which, ascending. On success
 * *POSITION is the first draw that fits HIT->target. -ENOENT: none. begin, end, threads and
 * enough of the query do not matter. */
int clair_seed_walk(const struct clair_seed_query *query, uint32_t generator,
		    const struct clair_seed_span *spans, size_t count, uint64_t *position,
		    struct clair_seed_hit *hit);
/* Whether one seed fits. */
bool clair_seed_fits(const struct clair_seed_target *target, uint32_t seed);
/* The first COUNT <= n entries of the permutation of N that SEED makes after SKIP draws. 0
 * or -ENOMEM. */
int clair_seed_prefix(uint32_t seed, uint32_t n, uint32_t skip, uint32_t count,
		      uint32_t *entries);
/* The same for CPython's generator: which Random(seed).sample(range(n), n) begins with samples
 * that were opened. skip, world and rank of a target must be 0, 1 and 0. */
int clair_python_search(const struct clair_seed_query *query, struct clair_seed_hit *hits,
			size_t room, size_t *count);
/* The first COUNT <= n entries of Random(seed).sample(range(n), n). 0 or -ENOMEM. */
int clair_python_prefix(uint32_t seed, uint32_t n, uint32_t count, uint32_t *entries);
/* "avx512", "avx2", "scalar": what clair_seed_search uses here; CLAIRFS_SIMD in the
 * environment asks for less. */
const char *clair_seed_search_path(void);

#endif
