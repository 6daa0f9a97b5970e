/* SPDX-License-Identifier: BSD-3-Clause */
#include "tracker_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void tracker_view_free(struct view *v, uint32_t lanes)
{
	if (!v)
		return;
	for (uint32_t l = 0; v->lanes && l < lanes; l++)
		clair_epoch_put(v->lanes[l]);
	free(v->lanes);
	free(v->base);
	free(v->where);
	free(v->same);
	free(v->opened);
	free(v);
}

static int view_invert(struct clair_tracker *t, struct view *v)
{
	uint32_t total = v->base[t->lane_count];

	v->where = malloc(sizeof *v->where * (t->file_limit + 1ul));
	v->opened = calloc(total / 64 + 1, sizeof *v->opened);
	if (!v->where || !v->opened)
		return -ENOMEM;
	memset(v->where, 0xff, sizeof *v->where * t->file_limit);
	/* From the end, so that the first entry of a file is found first. */
	for (uint32_t l = t->lane_count; l-- > 0;) {
		for (uint32_t i = v->lanes[l]->count; i-- > 0;) {
			uint32_t id = v->lanes[l]->ids[i], entry = v->base[l] + i;

			if (v->where[id] != NONE && !v->same) {
				v->same = malloc(sizeof *v->same * total);
				if (!v->same)
					return -ENOMEM;
				memset(v->same, 0xff, sizeof *v->same * total);
			}
			if (v->where[id] != NONE)
				v->same[entry] = v->where[id];
			v->where[id] = entry;
		}
	}
	return 0;
}

int tracker_view_new(struct clair_tracker *t, uint64_t epoch, struct view **out)
{
	size_t count;
	const uint32_t *ranks = clair_stream_ranks(t->stream, &count);
	struct view *v = calloc(1, sizeof *v);
	uint64_t total = 0;
	int r = -ENOMEM;

	if (!v)
		return r;
	v->epoch = epoch;
	v->lanes = calloc(t->lane_count, sizeof(struct clair_epoch *));
	v->base = calloc(t->lane_count + 1, sizeof *v->base);
	if (v->lanes && v->base)
		r = 0;
	for (uint32_t l = 0; r == 0 && l < t->lane_count; l++) {
		r = clair_stream_epoch(t->stream, epoch, ranks[l], &v->lanes[l]);
		if (r < 0)
			break;
		total += v->lanes[l]->count;
		if (total >= NONE)
			r = -EOVERFLOW;
		v->base[l + 1] = (uint32_t)total;
	}
	if (r == 0)
		r = view_invert(t, v);
	if (r < 0) {
		tracker_view_free(v, t->lane_count);
		return r;
	}
	*out = v;
	return 0;
}
