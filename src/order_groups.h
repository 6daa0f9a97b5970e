/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ORDER_GROUPS_H
#define CLAIR_ORDER_GROUPS_H

#include "sampler.h"

/* Samples that lie in shards, chunks, buckets or pages. The order's indices are those of
 * the samples when there are as many as the groups have together, and those of the groups
 * (files of shards) when there are as many groups: then a group is named where a rank
 * first reads from it. */
struct clair_groups {
	uint32_t *size, *start; /* samples of group i and before it; owned */
	uint32_t count, total;
	bool files; /* indices are groups */
};

/* Word KEY: a number (samples a group, the last one may be short) or a file with one
 * number a line; else params->sizes, one a group; else each sample is a group of its own.
 * 0, -EINVAL with *error, or -ENOMEM. */
int clair_groups_init(struct clair_groups *g, const struct clair_order_params *params,
		      const char *key, char **error);
void clair_groups_finish(struct clair_groups *g);
/* Appends what N samples are as indices. 0 or -ENOMEM. */
int clair_groups_emit(const struct clair_groups *g, const uint32_t *samples, size_t n,
		      struct clair_indices *out);

/* Numbers of a text file, one a line: *LIST is the caller's to free. */
int clair_groups_read(const char *file, uint64_t max, uint64_t **list, size_t *count,
		      char **error);

/* Batches of BATCH that WORKERS make in turn: part w of the COUNT parts [start, end) of
 * ITEMS belongs to worker w; appends to OUT a batch of each until all are empty. */
struct clair_part {
	const uint32_t *items;
	size_t count;
};
int clair_groups_interleave(struct clair_part *parts, size_t workers, size_t batch,
			    struct clair_indices *out);

#endif
