/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ORDER_ACCELERATE_H
#define CLAIR_ORDER_ACCELERATE_H

#include <stdbool.h>

#include "sampler.h"

/* accelerate's BatchSamplerShard: how the batches of one order go round the processes.
 */
struct clair_batch_shard {
	uint32_t batch, world; /* batch >= 1 */
	bool drop_last;
	bool split; /* each batch is cut in pieces, one a process */
	bool even;  /* the last round is filled up from the first batches */
};

/* Appends RANK's samples of ORDER. 0 or -ENOMEM. */
int clair_batch_shard(const struct clair_batch_shard *s, const uint32_t *order,
                      uint32_t n, uint32_t rank, struct clair_indices *out);

#endif
