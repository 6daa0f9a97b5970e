/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TRACKER_H
#define CLAIR_TRACKER_H

#include "stream.h"

/* From opens to the position of each local rank of one stream. Loaders with workers open a
 * window's files out of order, skip none, repeat some; several local ranks are mixed
 * without a name. A few hypotheses (this epoch, the same epoch again because set_epoch was
 * forgotten, resumed at epoch k, the epoch left in the middle, two passes before training,
 * a few validation batches first) compete; the best is followed. No locks: the caller
 * (stage) serialises by the stream's lock. No I/O. */
struct clair_tracker;

/* A stream whose order is unknown has a tracker, too: every open is unpredicted. */
int clair_tracker_new(struct clair_stream *stream, struct clair_tracker **out);
void clair_tracker_free(struct clair_tracker *tracker);

/* Whether the order of STREAM says at least half of these opens, those of its samples, as they
 * came; too few of them are always said. */
bool clair_tracker_explains(struct clair_stream *stream, const uint32_t *ids, size_t count);

enum clair_use {
	CLAIR_USE_REPEAT,      /* the same sample again within its window (cv2 opens twice) */
	CLAIR_USE_PREDICTED,   /* next, or within the window of a rank */
	CLAIR_USE_UNPREDICTED, /* fits nothing just now */
};

struct clair_open_result {
	enum clair_use use;
	uint32_t lane;     /* index of the local rank (not its number), when predicted */
	uint64_t epoch;    /* in which it was predicted */
	uint32_t index;    /* of the lane's entry in that epoch */
	bool moved;        /* the tracker jumped: positions changed otherwise than by one */
};

/* One open of the file ID at the monotonic time NOW (ns). Files that are not in the
 * stream must not be given. */
void clair_tracker_open(struct clair_tracker *tracker, uint32_t id, int64_t now,
			struct clair_open_result *result);

/* Where a lane is: the sampler's epoch that it reads, and the low-water mark: all entries
 * of the epoch before LOW were opened; entries in [low, high) may have been. */
struct clair_position {
	uint64_t epoch;
	uint32_t low, high;
	uint64_t pass; /* ordinal of the pass over the data since mount: tells an epoch
			  that is read again from the first time */
};
void clair_tracker_position(const struct clair_tracker *tracker, uint32_t lane,
			    struct clair_position *position);
/* Whether the entry INDEX of the lane's current epoch was opened (in this pass). */
bool clair_tracker_opened(const struct clair_tracker *tracker, uint32_t lane,
			  uint32_t index);
/* The sampler's epoch that LANE is expected to read after the current one: normally
 * epoch + 1; the same again when set_epoch was seen to be forgotten. */
uint64_t clair_tracker_next_epoch(const struct clair_tracker *tracker, uint32_t lane);
/* False when opens have fitted nothing for a while (a wrong seed): the stage then stops
 * fetching ahead. It stays false until they fit again. Decided within 500 opens, normally
 * within 40; a handful of strange opens does not suffice. */
bool clair_tracker_trusted(const struct clair_tracker *tracker);
/* The reader told us the epoch (xattr): positions move there at once. -ENOENT: the order
 * is unknown. */
int clair_tracker_set_epoch(struct clair_tracker *tracker, uint64_t epoch);

#endif
