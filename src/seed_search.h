/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SEED_SEARCH_H
#define CLAIR_SEED_SEARCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which 32-bit seeds of torch's generator make a permutation of N whose first entries (of
 * rank RANK in a world of WORLD) were all among the samples opened so far. Every seed of a
 * range is tried: AVX-512, AVX2 or plain code, chosen at run time. With RANK > 0 one seed in
 * n / rank is passed over by the quick look at the first entries. */

struct clair_seed_query {
	uint32_t n;          /* samples, >= 1 */
	uint32_t world, rank;
	uint32_t skip;       /* u32 drawn before the permutation: 0, 2 (explicit generator) */
	const uint64_t *opened; /* a bit a sample */
	uint32_t prefix;     /* entries of the rank that must all be opened, >= 1 */
	uint64_t begin, end; /* seeds, [begin, end), at most 2^32 */
	unsigned threads;    /* >= 1; they run at the lowest priority */
	_Atomic bool *cancel; /* or NULL: looked at now and then */
	_Atomic uint64_t *progress; /* or NULL: seeds done */
};

/* Output number (rank + skip) is the first one needed; it must be below this. */
#define CLAIR_SEED_OUTPUTS 220
/* The longest prefix that is looked at: entries of the whole permutation. */
#define CLAIR_SEED_PREFIX 8192

/* The seeds that fit, ascending, at most ROOM of them; *COUNT may be larger. 0, -EINVAL (the
 * query asks for more than the limits above), -ECANCELED, -ENOMEM. */
int clair_seed_search(const struct clair_seed_query *query, uint32_t *seeds, size_t room,
		      size_t *count);
/* Takes the first DRAWS u32 of the generator seeded GENERATOR as seeds, one after the other:
 * RandomSampler's epochs draw theirs from torch's default generator. From draw *POSITION on
 * (from 0); on success *POSITION is the draw that fits. -ENOENT: none. begin, end and
 * threads of the query do not matter. */
int clair_seed_walk(const struct clair_seed_query *query, uint32_t generator,
		    uint64_t draws, uint64_t *position);
/* Whether one seed fits. */
bool clair_seed_fits(const struct clair_seed_query *query, uint32_t seed);
/* "avx512", "avx2", "scalar": what clair_seed_search uses here; CLAIRFS_SIMD in the
 * environment asks for less. */
const char *clair_seed_search_path(void);

#endif
