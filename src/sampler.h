/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SAMPLER_H
#define CLAIR_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

#include "words.h"

/* Orders: which sample (index into the dataset order) a rank reads, and when. One file
 * a family (`order_*.c`), all behind struct clair_family, all in sampler_families.h.
 * A sampler belongs to one thread at a time; it has no locks. */

/* A growable array of sample indices. Zero-initialised is empty. */
struct clair_indices {
	uint32_t *at;
	size_t count;
	size_t room;
};

/* Makes room for COUNT indices in all (contents up to count are kept). 0 or -ENOMEM. */
int clair_indices_reserve(struct clair_indices *list, size_t count);
int clair_indices_append(struct clair_indices *list, uint32_t index);
void clair_indices_finish(struct clair_indices *list);

/* What a family is opened with. */
struct clair_order_params {
	uint32_t n;     /* samples in dataset order, >= 0 */
	uint32_t world; /* ranks of the job, >= 1 */
	const struct clair_words *words; /* seed, batch, workers, shuffle, drop_last, …;
					    the family's own defaults where missing */
	/* Sizes or keys that some families need (length buckets, aspect ratios):
	 * one value a sample or NULL. Not owned. */
	const uint64_t *sizes;
};

struct clair_family_word {
	const char *name;
	const char *fallback; /* the default as text, "" when there is none */
	const char *help;
};

struct clair_family {
	const char *name;     /* as in -o sampler=NAME */
	const char *help;     /* one line: the framework's class, what it does */
	const char *versions; /* which versions of the framework, "" when all */
	const struct clair_family_word *words; /* ends with a NULL name */
	/* Returns 0 and the state, or a negative errno; -EINVAL comes with *error (see
	 * words.h). Must refuse values that make no sense (batch=0 where it is needed). */
	int (*open)(const struct clair_order_params *params, void **state, char **error);
	/* Appends to OUT what RANK reads in EPOCH, in the order in which it reads. Any
	 * epoch may be asked for, also an earlier one; the next one is the cheap one.
	 * 0 or a negative errno; OUT's contents are void after an error. */
	int (*epoch)(void *state, uint64_t epoch, uint32_t rank,
		     struct clair_indices *out);
	void (*close)(void *state); /* takes NULL */
};

/* NULL when there is no such name. */
const struct clair_family *clair_family_find(const char *name);
/* The I-th family in the order of the listing, NULL past the end. */
const struct clair_family *clair_family_at(size_t i);

struct clair_sampler;

/* NAME: a family, or `list:FILE` (one index or path a line, an empty line between
 * epochs; paths are resolved by PATH_INDEX, which may be NULL when there are none).
 * Every word in PARAMS that the family does not know and that is not one of the common
 * ones (world, ranks, epoch, epochs, batch, workers, index, split, seed, shuffle,
 * drop_last) is a mistake that *error names. */
int clair_sampler_new(const char *name, const struct clair_order_params *params,
		      int (*path_index)(void *arg, const char *path, uint32_t *index),
		      void *arg, struct clair_sampler **out, char **error);
void clair_sampler_free(struct clair_sampler *sampler);
/* Replaces OUT's contents. Indices are checked to be < n (-ERANGE is a bug). */
int clair_sampler_epoch(struct clair_sampler *sampler, uint64_t epoch, uint32_t rank,
			struct clair_indices *out);
const struct clair_family *clair_sampler_family(const struct clair_sampler *sampler);

#endif
