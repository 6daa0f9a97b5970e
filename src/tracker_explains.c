/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether an order says what was opened, and not only that some of the opens are its own. */
#include <stdlib.h>

#include "cleanup.h"
#include "tracker.h"

/* So many may pass before the position in an order is found. */
#define LOST 16

bool clair_tracker_explains(struct clair_stream *stream, const uint32_t *ids, size_t count)
{
	struct clair_open_result result;
	struct clair_tracker *tracker;
	size_t strange = 0, own = 0;
	uint32_t n, most = 0;
	const uint32_t *samples = clair_stream_samples(stream, &n);

	for (uint32_t i = 0; i < n; i++)
		most = samples[i] > most ? samples[i] : most;
	autofree uint8_t *is_own = calloc(1, most + 1ul);
	if (!is_own || clair_tracker_new(stream, &tracker) < 0)
		return true; /* it is not known */
	for (uint32_t i = 0; i < n; i++)
		is_own[samples[i]] = 1;
	for (size_t i = 0; i < count; i++) {
		if (ids[i] > most || !is_own[ids[i]])
			continue;
		clair_tracker_open(tracker, ids[i], 0, &result);
		own++;
		strange += result.use == CLAIR_USE_UNPREDICTED;
	}
	clair_tracker_free(tracker);
	return strange <= LOST || strange * 2 <= own;
}
