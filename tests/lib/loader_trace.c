/* SPDX-License-Identifier: BSD-3-Clause */
#include "loader_trace.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct worker {
	uint32_t batch; /* that it is at */
	uint32_t done;  /* samples of it */
};

static uint32_t random_u32(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

void loader_trace_by(const uint32_t *ids, uint32_t count, unsigned workers, unsigned batch,
		     unsigned prefetch, uint32_t seed, uint32_t *out, uint8_t *by)
{
	if (!workers) {
		if (by)
			memset(by, 0, count);
		memcpy(out, ids, count * sizeof *ids);
		return;
	}
	uint32_t batches = (count + batch - 1) / batch, n = 0, received = 0;
	struct worker *w = calloc(workers, sizeof *w);
	bool *ready = calloc(batches + 1, sizeof *ready);

	for (unsigned i = 0; i < workers; i++)
		w[i].batch = i;
	while (n < count) {
		uint32_t at = random_u32(&seed) % workers;
		struct worker *x = &w[at];
		/* Batches go to a worker only when the main loop has received enough. */
		if (x->batch >= batches || x->batch >= received + prefetch * workers)
			continue;
		uint32_t begin = x->batch * batch;
		uint32_t size = count - begin < batch ? count - begin : batch;
		if (by)
			by[n] = (uint8_t)at;
		out[n++] = ids[begin + x->done++];
		if (x->done == size) {
			ready[x->batch] = true;
			x->batch += workers;
			x->done = 0;
		}
		while (received < batches && ready[received])
			received++;
	}
	free(w);
	free(ready);
}

void loader_trace(const uint32_t *ids, uint32_t count, unsigned workers, unsigned batch,
		  unsigned prefetch, uint32_t seed, uint32_t *out)
{
	loader_trace_by(ids, count, workers, batch, prefetch, seed, out, NULL);
}
