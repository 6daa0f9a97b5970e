/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "order_accelerate.h"
#include "order_take.h"

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Pieces of each batch; the short last one is filled up with the first batch again. */
static int split_batches(const struct clair_batch_shard *s, const uint32_t *order,
                         uint32_t n, uint32_t rank, struct clair_indices *out)
{
	uint32_t piece = s->batch / s->world, full = n / s->batch, rest = n % s->batch;
	uint64_t low = (uint64_t)piece * rank, high = low + piece;
	uint64_t first = min_u64(n, s->batch);
	int r = 0;

	for (uint32_t b = 0; b < full && r == 0; b++)
		r = clair_take_copy(order + (uint64_t)b * s->batch + low, piece, out);
	if (s->drop_last || !rest)
		return r;
	const uint32_t *last = order + (uint64_t)full * s->batch;
	for (uint64_t i = low; i < high && r == 0; i++) {
		if (i < rest)
			r = clair_indices_append(out, last[i]);
		else if (s->even)
			r = clair_indices_append(out, order[(i - rest) % first]);
	}
	return r;
}

/* The batches that do not fill a round. FILL counts what earlier ranks took from the
 * beginning of the order. */
static int last_round(const struct clair_batch_shard *s, const uint32_t *order,
                      uint32_t n, uint64_t done, uint32_t rank,
                      struct clair_indices *out)
{
	uint64_t fill = 0, begin = 0, have = 0;
	uint64_t first = min_u64(n, (uint64_t)s->batch * s->world);
	int r;

	if (done >= n)
		return 0;
	for (uint32_t k = 0; k <= rank; k++) {
		begin = min_u64(n, done + (uint64_t)k * s->batch);
		have = min_u64(n - begin, s->batch);
		if (k < rank)
			fill += s->batch - have;
	}
	r = clair_take_copy(order + begin, have, out);
	if (!s->even)
		return r;
	for (; have < s->batch && r == 0; have++)
		r = clair_indices_append(out, order[fill++ % first]);
	return r;
}

int clair_batch_shard(const struct clair_batch_shard *s, const uint32_t *order,
                      uint32_t n, uint32_t rank, struct clair_indices *out)
{
	uint64_t round = (uint64_t)s->batch * s->world,
	         rounds = n / s->batch / s->world;
	int r = 0;

	if (s->split)
		return split_batches(s, order, n, rank, out);
	for (uint64_t k = 0; k < rounds && r == 0; k++)
		r = clair_take_copy(order + k * round + (uint64_t)rank * s->batch,
		                    s->batch, out);
	if (r < 0 || s->drop_last) {
		return r;
	}
	return last_round(s, order, n, rounds * round, rank, out);
}
