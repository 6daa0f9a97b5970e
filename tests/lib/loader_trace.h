/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef LOADER_TRACE_H
#define LOADER_TRACE_H

#include <stdint.h>

/* In which order the samples of one epoch are opened by a DataLoader with WORKERS worker
 * processes, batches of BATCH, PREFETCH batches a worker ahead: worker w takes batches w,
 * w + WORKERS, …; inside a batch in order; the speeds of the workers are random (SEED).
 * OUT has room for COUNT. WORKERS 0: as given. */
void loader_trace(const uint32_t *ids, uint32_t count, unsigned workers, unsigned batch,
		  unsigned prefetch, uint32_t seed, uint32_t *out);
/* The same; BY[i] is the worker that opens OUT[i] (NULL: not asked). */
void loader_trace_by(const uint32_t *ids, uint32_t count, unsigned workers, unsigned batch,
		     unsigned prefetch, uint32_t seed, uint32_t *out, uint8_t *by);

#endif
