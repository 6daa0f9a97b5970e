/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_STATS_H
#define CLAIR_STATS_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdint.h>

/* Counters of one mount. Monotonic, relaxed atomics: anyone may add, anyone may read. */

struct clair_counter {
	_Atomic uint64_t samples, bytes;
};

enum clair_fuse_request {
	CLAIR_FUSE_LOOKUP, CLAIR_FUSE_FORGET, CLAIR_FUSE_GETATTR, CLAIR_FUSE_SETATTR,
	CLAIR_FUSE_READLINK, CLAIR_FUSE_OPEN, CLAIR_FUSE_READ, CLAIR_FUSE_FLUSH,
	CLAIR_FUSE_RELEASE, CLAIR_FUSE_OPENDIR, CLAIR_FUSE_READDIR, CLAIR_FUSE_STATFS,
	CLAIR_FUSE_GETXATTR, CLAIR_FUSE_LISTXATTR, CLAIR_FUSE_SETXATTR, CLAIR_FUSE_ACCESS,
	CLAIR_FUSE_OTHER, CLAIR_FUSE_REQUESTS
};
extern const char *const clair_fuse_request_names[CLAIR_FUSE_REQUESTS];

struct clair_stats {
	/* Where the bytes of samples came from. pfs counts every byte that left the source,
	 * for whatever reason. */
	struct clair_counter pfs, ram, cache, peer;
	_Atomic uint64_t pfs_opens, pfs_walks, pfs_errors;
	_Atomic uint64_t fuse[CLAIR_FUSE_REQUESTS];  /* by readers */
	_Atomic uint64_t own[CLAIR_FUSE_REQUESTS];   /* caused by the daemon's own lookups */
	_Atomic uint64_t error_hash, error_cache, error_peer, error_reader;
	_Atomic uint64_t lost_samples, lost_pages; /* the kernel dropped them unasked */
	_Atomic uint64_t overflows;                /* of the inotify queue */
	_Atomic uint64_t pushed_bytes, dropped_bytes;
};

static inline void clair_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* One epoch of one stream, all local ranks together. */
struct clair_epoch_stats {
	uint64_t epoch;
	uint64_t opens, bytes;
	uint64_t staged, late, missed, unpredicted;
	int64_t begin_ns, end_ns; /* first and last open, monotonic */
	int64_t stall_ns;         /* time that READs waited, added up */
	uint64_t pfs_at;          /* bytes that had left the source at the first open; of the
				     first epoch 0: what was fetched before it is its own */
};

/* Adds "reads", "pfs", "fuse", "errors", "lost" of the report to OBJECT. 0 or -ENOMEM. */
int clair_stats_json(const struct clair_stats *stats, json_t *object);
/* PFS_END: bytes that had left the source when the next epoch began, or now. */
json_t *clair_epoch_stats_json(const struct clair_epoch_stats *epoch, uint64_t pfs_end);

/* D + (E - 1) * max(0, D - C) for EPOCHS epochs begun; D bytes read once an epoch. */
uint64_t clair_pfs_bound(uint64_t dataset, uint64_t capacity, uint64_t epochs);

#endif
