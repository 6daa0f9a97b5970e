/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DISK_INTERNAL_H
#define CLAIR_DISK_INTERNAL_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "disk.h"

/* Shared by disk.c, disk_index.c and disk_verify.c only.
 *
 * A tier is a folder with `lock`, `index` and `segment-NNNNNN` files. Samples lie in the
 * segments one behind the other; the index is a log of fixed records, each with a checksum
 * of its own, appended after the sample's bytes were written. Nothing is synced: after a
 * crash a record may be there without its bytes, which their hash shows when they are
 * read. A torn tail of the index is cut off. */

#define CLAIR_DISK_MAGIC 0x31534443u /* "CDS1" */
#define CLAIR_SEGMENT_BYTES (256ull << 20)

struct clair_disk_record {
	uint32_t magic;
	uint32_t segment;
	uint64_t offset, size;
	uint64_t hash;     /* XXH3_64 of the sample's bytes */
	uint64_t key[2];   /* XXH3_128 of path, size and mtime */
	uint64_t checksum; /* XXH3_64 of all before */
};
static_assert(sizeof(struct clair_disk_record) == 56, "goes to disk");

uint64_t clair_disk_record_checksum(const struct clair_disk_record *record);
bool clair_disk_record_valid(const struct clair_disk_record *record);
/* The key of a catalog's file. */
void clair_disk_key(const struct clair_catalog *catalog, uint32_t id, uint64_t key[2]);
/* Reads the log of the folder DIR: valid records until the first that is not (heap).
 * COMPLETE: false when something follows them. 0, -ENOENT (no log), other errno. */
int clair_disk_read_index(int dir, struct clair_disk_record **records, size_t *count,
			  bool *complete);
/* Records by key, open addressing, 1 + the index or 0 (heap); a later record of the same
 * key wins. */
size_t *clair_disk_hash_records(const struct clair_disk_record *records, size_t count,
				size_t *mask);
/* All SIZE bytes, none of which stay in memory: -EBADMSG when the file ends before. */
int clair_disk_read_at(int fd, char *p, size_t size, uint64_t offset);
int clair_disk_open_segment(int dir, uint32_t segment, int flags);
/* Removes segments from number FIRST on. */
void clair_disk_remove_segments(int dir, uint32_t first);
/* Removes the index and all segments. */
void clair_disk_wipe(int dir);

#endif
