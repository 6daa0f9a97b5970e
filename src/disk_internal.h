/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DISK_INTERNAL_H
#define CLAIR_DISK_INTERNAL_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "disk.h"

/* Shared by the tier's own files (disk*.c) only.
 *
 * A tier is a folder with `lock`, `index` and `segment-NNNNNN` files. Samples lie in the
 * segments one behind the other; the index is a log of fixed records, each with a checksum
 * of its own, appended after the sample's bytes were written. Nothing is synced: after a
 * crash a record may be there without its bytes, which their hash shows when they are
 * read. A torn tail of the index is cut off.
 *
 * A sample that is added in pieces is followed by a table with the XXH3_64 of each of its
 * pieces, and its record (of a magic of its own, which ends the log for a clairfs that does
 * not know it) has the hash of the table. Like any other it lies in one run of bytes; one
 * that is larger than a segment has a segment of its own. */

#define CLAIR_DISK_MAGIC 0x31534443u        /* "CDS1" */
#define CLAIR_DISK_MAGIC_PIECES 0x32534443u /* "CDS2" */
#define CLAIR_SEGMENT_BYTES (256ull << 20)

struct clair_disk_record {
	uint32_t magic;
	uint32_t segment;
	uint64_t offset, size;
	uint64_t hash;     /* XXH3_64 of the sample's bytes, or of its table */
	uint64_t key[2];   /* XXH3_128 of path, size and mtime */
	uint64_t checksum; /* XXH3_64 of all before */
};
static_assert(sizeof(struct clair_disk_record) == 56, "goes to disk");

static inline uint32_t clair_disk_piece_count(uint64_t size)
{
	return (uint32_t)((size + CLAIR_DISK_PIECE - 1) / CLAIR_DISK_PIECE);
}

/* Bytes of piece number PIECE of a sample of SIZE bytes. */
static inline size_t clair_disk_piece_size(uint64_t size, uint32_t piece)
{
	uint64_t left = size - (uint64_t)piece * CLAIR_DISK_PIECE;

	return left < CLAIR_DISK_PIECE ? (size_t)left : CLAIR_DISK_PIECE;
}

/* Bytes that a sample added in pieces takes in its segment. */
static inline uint64_t clair_disk_with_table(uint64_t size)
{
	return size + sizeof(uint64_t) * clair_disk_piece_count(size);
}

static inline uint64_t clair_disk_record_bytes(const struct clair_disk_record *record)
{
	return record->magic == CLAIR_DISK_MAGIC_PIECES ? clair_disk_with_table(record->size) :
							  record->size;
}

/* --- the open tier: disk.c and disk_pieces.c --- */

#define NONE UINT32_MAX
#define RECORD sizeof(struct clair_disk_record)

/* The hashes of a sample's pieces; lives until the tier is closed. */
struct piece_table {
	struct piece_table *next;
	/* A piece each, behind the hashes: it was held against its hash since the open. */
	atomic_uchar *right;
	uint64_t hash[];
};

struct slot {
	uint32_t segment;
	bool pieces;  /* it has a table */
	bool checked; /* whole: held against the hash since the open; pieces: table is there */
	uint64_t offset;
	union {
		uint64_t hash;
		struct piece_table *table; /* pieces and checked */
	};
};
static_assert(sizeof(struct slot) == 24, "one a sample");

struct clair_disk {
	const struct clair_catalog *catalog;
	char *path;
	int dir, lock_fd, index;
	uint64_t cap, floor;

	pthread_mutex_t lock;
	/* Under lock. */
	struct { _Atomic uint32_t at; } *slot_of; /* by id: NONE or a place in slots; read without lock */
	struct slot *slots;
	uint32_t slot_count, slot_room;
	struct piece_table *tables;
	int *segments; /* descriptors, -1: not opened */
	uint32_t segment_count;
	uint64_t tail;               /* bytes of the last segment */
	uint64_t file_bytes;         /* of all files */
	uint64_t claimed;            /* bytes promised, records included */
	uint64_t unwritten;          /* of file_bytes: of samples that are being written */
	uint64_t samples, bytes;
	uint64_t unflushed, since_free, free_bytes;
	uint64_t errors, damaged;
	unsigned errors_in_a_row;
	bool full, broken;
};

int clair_disk_add_slot(struct clair_disk *d, uint32_t id, const struct slot *slot); /* lock */
int clair_disk_write_at(int fd, const char *p, size_t size, uint64_t offset);
/* A place for SIZE bytes at the end of the last segment, or in a new one: its descriptor. lock */
int clair_disk_place(struct clair_disk *d, uint64_t size, struct slot *slot);
/* A sample could not be added, for R. lock */
void clair_disk_failed(struct clair_disk *d, int r);
/* Appends the record of a sample of SIZE bytes. lock */
int clair_disk_append(struct clair_disk *d, uint32_t id, const struct slot *slot,
		      uint64_t size);
/* SIZE bytes were written; pages leave memory in batches. The lock is not held. */
void clair_disk_flush_behind(struct clair_disk *d, int fd, uint64_t size);
/* Where ID is: a descriptor, or -ENOENT. Takes the lock. */
int clair_disk_find(struct clair_disk *d, uint32_t id, struct slot *slot);
/* A read said R: counts it, and forgets a sample that is damaged when FORGET. Returns R. */
int clair_disk_read_failed(struct clair_disk *d, uint32_t id, int r, bool forget);
/* Reads of a sample with a table: as the public ones. -EBADMSG without forgetting. */
int clair_disk_read_pieces(struct clair_disk *d, uint32_t id, int fd, struct slot *slot,
			   unsigned char *buffer, size_t size, uint64_t offset);

/* --- the files --- */

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
