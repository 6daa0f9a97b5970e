/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_STAGE_H
#define CLAIR_STAGE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "catalog.h"
#include "disk.h"
#include "kernel.h"
#include "model.h"
#include "options.h"
#include "peers.h"
#include "source.h"
#include "stats.h"
#include "stream.h"

/* The heart: worker threads that walk ahead of each local rank's position, fetch every
 * sample once from the fastest place that has it, and push it into the kernel before it is
 * read. Thread-safe. ARCHITECTURE.md, "Stage", has states, budgets and the lock order. */
struct clair_stage;

struct clair_stage_config {
	const struct clair_catalog *catalog; /* this and the next outlive the stage */
	struct clair_source *source;
	const struct clair_kernel *kernel;
	struct clair_disk **disks; /* fastest first */
	size_t disk_count;
	struct clair_stats *stats;
	uint64_t ram, staging; /* budgets, bytes */
	unsigned threads;      /* 0: as many as the bandwidth needs, up to 64 */
	enum clair_keep keep;
	/* The catalog is of an earlier mount: what a directory has is held against the
	 * source's attributes before it is used. */
	bool saved_catalog;
};

int clair_stage_new(const struct clair_stage_config *config, struct clair_stage **out);
/* Takes STREAM. A stream of the same folder is replaced at once: what was staged for it
 * and is not needed any more is dropped. Streams may be nested: a file belongs to the
 * deepest one. -EBUSY never: waits until workers are out of the old stream. */
int clair_stage_set_stream(struct clair_stage *stage, struct clair_stream *stream);
/* The other nodes of the job, which outlive the stage. Takes PLACEMENT. After the streams, before
 * clair_stage_start; samples are kept in the arena from then on. 0 or a negative errno. */
int clair_stage_set_peers(struct clair_stage *stage, struct clair_peers *peers,
			  struct clair_placement *placement);
/* What another node asks for: a clair_peers_server's get, SELF is the stage. */
void clair_stage_get(void *self, uint16_t node, uint32_t id, uint32_t piece,
		     uint64_t request);
/* The streams, the deepest folders last: heap, the caller frees the array. Before
 * clair_stage_start only. */
int clair_stage_streams(struct clair_stage *stage, struct clair_stream ***streams,
			size_t *count);
/* Bandwidths measured before (calibrate.h): where its model begins. Before clair_stage_start. */
void clair_stage_set_model(struct clair_stage *stage, const struct clair_model *model);
/* Starts the workers. Staging begins at once for streams whose order is known. */
int clair_stage_start(struct clair_stage *stage);
/* Ends the workers within 2 s, whatever the PFS does (a hanging call is left behind). */
void clair_stage_stop(struct clair_stage *stage);
void clair_stage_free(struct clair_stage *stage);

/* A READ of a reader that reached the daemon. Never waits for a push. Waits for a fetch
 * that is under way, else begins one (whole file when it is small), else reads the source.
 * On success OUT holds min(size, what is left of the file) bytes. -ESTALE cannot come: a
 * changed file is read from the source as it is now. -EIO only when the source itself
 * fails after retries. Pair with clair_stage_release. */
struct clair_bytes {
	const void *data;
	size_t size;
	void *hold;
};
int clair_stage_read(struct clair_stage *stage, uint32_t id, uint64_t offset, size_t size,
		     struct clair_bytes *out);
void clair_stage_release(struct clair_stage *stage, struct clair_bytes *bytes);

/* What the watch saw: a reader opened ID at NOW (monotonic ns). Cheap, no I/O. */
void clair_stage_opened(struct clair_stage *stage, uint32_t id, int64_t now);
/* Events were lost: positions are found again from those that follow. */
void clair_stage_overflow(struct clair_stage *stage);
/* The kernel forgot the inode (FORGET to zero): its pages are gone. */
void clair_stage_forgot(struct clair_stage *stage, uint32_t id);
/* The daemon saw by a stat that the source's file differs from the catalog: it is passed
 * through from now on. */
void clair_stage_changed(struct clair_stage *stage, uint32_t id);
/* Somebody wrote into the page cache, through a shared mapping: it is read again. */
void clair_stage_spoiled(struct clair_stage *stage, uint32_t id);
bool clair_stage_is_changed(struct clair_stage *stage, uint32_t id);
/* xattr epoch: positions of the stream of FOLDER move there. -ENOENT: no such stream. */
int clair_stage_set_epoch(struct clair_stage *stage, uint32_t folder, uint64_t epoch);

/* The stream of FOLDER has just been found: IDS (oldest first) were opened before. Nothing
 * is counted. -ENOENT: no such stream. */
int clair_stage_replay(struct clair_stage *stage, uint32_t folder, const uint32_t *ids,
		       size_t count);
/* Whether the opens follow the order that the stream of FOLDER has. */
bool clair_stage_trusted(struct clair_stage *stage, uint32_t folder);

/* "staged", "ram", "ssd", "pfs", "peer:N" (good until the thread's next call) */
const char *clair_stage_where(struct clair_stage *stage, uint32_t id);
/* The report's "streams" array, "keep", and gauges ("staging": {used, budget}, "ram":
 * {used, budget, samples}, "cache": […]); adds to OBJECT. 0 or -ENOMEM. */
int clair_stage_json(struct clair_stage *stage, json_t *object);
/* Bytes that RAM and the directories together can hold (C of the bound), as far as known,
 * and the bytes and epochs of all streams for the bound. */
void clair_stage_bound(struct clair_stage *stage, uint64_t *capacity, uint64_t *dataset,
		       uint64_t *epochs);
/* Blocks until it is decided where samples are kept, where an order is known: what is read before
 * that may leave the source twice. At most TIMEOUT_MS. */
void clair_stage_wait_decided(struct clair_stage *stage, int timeout_ms);
/* Blocks until every stream's staging window is full or nothing is left to stage, at most
 * TIMEOUT_MS: 0, or -ETIMEDOUT. For tests and `status --wait`. */
int clair_stage_wait_full(struct clair_stage *stage, int timeout_ms);

#endif
