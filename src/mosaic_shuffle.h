/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MOSAIC_SHUFFLE_H
#define CLAIR_MOSAIC_SHUFFLE_H

#include "order_groups.h"

enum mosaic_algorithm {
	MOSAIC_PY1E,
	MOSAIC_PY1BR,
	MOSAIC_PY1B,
	MOSAIC_PY1S,
	MOSAIC_PY2S,
	MOSAIC_NAIVE,
};

struct mosaic {
	enum mosaic_algorithm algorithm;
	const struct clair_groups *groups; /* the shards */
	uint32_t canonical, block;
	uint64_t seed;
};

/* The epoch's sample ids before they are given to ranks; OUT has room for all. */
int mosaic_shuffle(const struct mosaic *m, uint64_t epoch, uint32_t *out);

#endif
