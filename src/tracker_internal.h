/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TRACKER_INTERNAL_H
#define CLAIR_TRACKER_INTERNAL_H

/* Shared by tracker.c and tracker_view.c only. A *view* is one epoch of all local ranks
 * (lanes), with the inverse: where in it a file is. */

#include "tracker.h"

#define NONE UINT32_MAX
/* Opens that a hypothesis is held against. */
#define RECENT 32

struct view {
	uint64_t epoch;
	struct clair_epoch **lanes;
	uint32_t *base;   /* of each lane in the numbering of all entries; [lanes] = total */
	uint32_t *where;  /* by file: its first entry, or NONE */
	uint32_t *same;   /* by entry: the next entry of the same file; NULL: no doubles */
	uint64_t *opened; /* a bit an entry */
};

struct lane {
	struct view *view;
	uint32_t low, high;
	uint64_t pass;
};

struct clair_tracker {
	struct clair_stream *stream;
	uint32_t lane_count, file_limit; /* one past the highest file id */
	struct lane *lanes;
	struct view *current, *next;
	uint64_t left; /* the epoch that was read before the current one, or UINT64_MAX */
	bool repeats;  /* the same epoch again and again: set_epoch is forgotten */
	bool trusted;
	int strange; /* in quarters */
	uint32_t recent[RECENT];
	unsigned recent_count, recent_at;
	uint8_t *mark;       /* by file, for a hypothesis */
	uint64_t tried;      /* candidates of the search that is under way */
	/* A failed search is not repeated at every open: how many, and when again. */
	unsigned searches;
	uint64_t search_at; /* opens */
	uint64_t opens;
};

/* Of EPOCH: 0, -ENOMEM, -EOVERFLOW (too many entries), or the order's errno. */
int tracker_view_new(struct clair_tracker *t, uint64_t epoch, struct view **out);
void tracker_view_free(struct view *v, uint32_t lanes); /* takes NULL */

static inline bool is_opened(const struct view *v, uint32_t entry)
{
	return v->opened[entry / 64] >> entry % 64 & 1;
}

static inline void set_opened(struct view *v, uint32_t entry)
{
	v->opened[entry / 64] |= 1ull << entry % 64;
}

static inline uint32_t lane_of(const struct clair_tracker *t, const struct view *v, uint32_t entry)
{
	uint32_t l = 0;

	while (l + 1 < t->lane_count && entry >= v->base[l + 1])
		l++;
	return l;
}

#endif
