/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ORDER_BATCHES_H
#define CLAIR_ORDER_BATCHES_H

#include "sampler.h"

/* A list of batches of any length: batch i is items[ends[i - 1], ends[i]). */
struct clair_batches {
	struct clair_indices items, ends;
};

void clair_batches_finish(struct clair_batches *b);
/* Appends a batch of N items, from the last one to the first when BACKWARDS. */
int clair_batches_add(struct clair_batches *b, const uint32_t *items, size_t n,
		      bool backwards);
const uint32_t *clair_batches_at(const struct clair_batches *b, size_t i, size_t *n);
/* Turns the list round, batches stay as they are. */
int clair_batches_reverse(struct clair_batches *b);
/* Batches made elsewhere: the word `batches` names a file with their lengths, the word
 * `order` one with the samples (in dataset order when it is missing). *GIVEN tells whether
 * there are any. */
int clair_batches_given(struct clair_batches *b, const struct clair_order_params *params,
			bool *given, char **error);

/* A number a sample: from the file that word KEY names, or the params' sizes; *VALUES (n)
 * is the caller's to free. */
int clair_batches_numbers(const struct clair_order_params *params, const char *key,
			  double **values, char **error);
/* Floating numbers of a text file, one a line. */
int clair_batches_read(const char *file, double **list, size_t *count, char **error);
/* Sorts the N items by KEY (indexed by item), stable; DOWN: the largest first. */
int clair_batches_sort(uint32_t *items, size_t n, const double *key, bool down);

#endif
