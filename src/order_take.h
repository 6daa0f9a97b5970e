/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ORDER_TAKE_H
#define CLAIR_ORDER_TAKE_H

#include "sampler.h"

/* Which part of one order that all ranks share a rank takes. */
enum clair_take {
	CLAIR_TAKE_ALL,       /* everything */
	CLAIR_TAKE_STRIDE,    /* [rank::world] */
	CLAIR_TAKE_PAD,       /* filled up from its start to a multiple of world, then that */
	CLAIR_TAKE_DROP,      /* cut to a multiple of world, then [rank::world] */
	CLAIR_TAKE_BLOCK,     /* [n r / world, n (r + 1) / world) */
	CLAIR_TAKE_SPREAD,    /* contiguous, the first n % world ranks have one more */
	CLAIR_TAKE_BLOCK_PAD, /* filled up, then contiguous */
};

/* The word `take`: all, stride, pad, drop, block, spread, block-pad. 0 or -EINVAL. */
int clair_take_word(const struct clair_words *words, enum clair_take fallback,
		    enum clair_take *take, char **error);
/* Appends RANK's part of ORDER. 0 or -ENOMEM. */
int clair_take(enum clair_take take, const uint32_t *order, size_t n, uint32_t world,
	       uint32_t rank, struct clair_indices *out);
/* Appends N indices. 0 or -ENOMEM. */
int clair_take_copy(const uint32_t *items, size_t n, struct clair_indices *out);
/* Room for N more indices behind OUT's, which count already; NULL when memory is out. */
uint32_t *clair_take_room(struct clair_indices *out, size_t n);

/* A dotted version ("3.15.1") as 1000000 major + 1000 minor + patch; 0 or -EINVAL. */
int clair_version_word(const struct clair_words *words, const char *key,
		       const char *fallback, uint32_t *version, char **error);
/* The index of KEY's value among NAMES (NULL ends them), FALLBACK when it is missing. */
int clair_name_word(const struct clair_words *words, const char *key,
		    const char *const *names, unsigned fallback, unsigned *which,
		    char **error);

#endif
