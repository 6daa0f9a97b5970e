/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SEED_SEARCH_INTERNAL_H
#define CLAIR_SEED_SEARCH_INTERNAL_H

#include <pthread.h>

#include "seed_search.h"

/* Shared by the files seed_search*.c only. */

/* The most outputs that a kernel makes in one go, and the most seeds. */
#define SPAN 208
#define MOST_SEEDS 192
/* Of CPython's generator: outputs that are made, chains that are interleaved (their state, 624
 * words each, must stay in the second-level cache). */
#define PYTHON_OUTPUTS 6
#define PYTHON_CHAINS 6

/* One instruction set; seed_search_filter.h has the functions. */
struct kernel {
	unsigned seeds; /* at once */
	void (*outputs)(const uint32_t *seeds, uint32_t from, uint32_t to, uint32_t *out);
	void (*places)(const uint32_t *u, uint32_t entry, uint32_t d, uint32_t reciprocal,
		       uint32_t *z);
	void (*lookup)(const uint8_t *table, const uint32_t *z, uint32_t *open);
	void (*repeats)(const uint32_t *z, const uint32_t *before, uint32_t *open);
	bool (*common)(const uint32_t *rows, size_t step, unsigned count, uint32_t slots,
		       uint32_t *alive);
	unsigned python_seeds;
	size_t python_room; /* bytes of state, aligned to 64 */
	void (*python)(const uint32_t *seeds, const uint32_t *base, void *state,
		       uint32_t *out);
};

const struct kernel *clair_seed_kernel(const char **name);

/* --- one seed, exactly: seed_search_exact.c --------------------------------------------- */

/* The first entries of a permutation touch few places: those that were swapped are kept
 * aside. Open addressing, emptied by its own list. */
struct swaps {
	uint32_t *key, *value; /* key: place + 1 */
	uint32_t mask;
	uint32_t *used;
	uint32_t count;
};

int clair_swaps_init(struct swaps *s, uint32_t entries);
void clair_swaps_finish(struct swaps *s);
/* What stands at a place, at first its own number; good until the next call. */
uint32_t *clair_swaps_place(struct swaps *s, uint32_t at);
void clair_swaps_empty(struct swaps *s);
/* Entries of the permutation that must be known for the rank's prefix. */
uint64_t clair_seed_entries(const struct clair_seed_target *t);
int clair_seed_check(const struct clair_seed_target *t);
/* SWAPS has room for the entries of T. */
bool clair_seed_fits_with(const struct clair_seed_target *t, uint32_t seed,
			  struct swaps *swaps);

/* By seed, then target. */
void clair_seed_sort_hits(struct clair_seed_hit *hits, size_t count);

/* Joins COUNT searching threads, which run when nobody else does; once *CANCEL (or NULL) is set
 * they run as others do, so that they come to see it on a busy machine too. */
void clair_seed_join(pthread_t *threads, unsigned count, const _Atomic bool *cancel);

#endif
