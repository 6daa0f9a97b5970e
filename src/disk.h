/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DISK_H
#define CLAIR_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "catalog.h"

/* One directory tier: samples packed into segment files with an XXH3 checksum each.
 * Survives a crash at any byte; kept between mounts; only slower, never wrong, when the
 * disk is full or fails. Thread-safe (its own mutex; none is held across I/O). */
struct clair_disk;

struct clair_disk_config {
	const char *path;    /* created (0700) when missing */
	uint64_t bytes;      /* hard cap on everything that it writes, segments and index */
	uint64_t free_bytes; /* floor of free space left in the file system */
};

/* Opens or makes the tier for this CATALOG: what an earlier mount left is reused when it
 * belongs to the same data (a sample is reused when path, size and mtime are the same),
 * else it is dropped. Locks the folder against a second mount: -EBUSY with *error.
 * 0 or a negative errno with *error (one line). */
int clair_disk_open(const struct clair_disk_config *config,
		    const struct clair_catalog *catalog, struct clair_disk **out,
		    char **error);
/* Makes what was added durable enough to be found by the next mount, and closes. */
void clair_disk_close(struct clair_disk *disk);

/* Whether ID is here whole. O(1), no I/O. */
bool clair_disk_has(const struct clair_disk *disk, uint32_t id);
/* Claims room for a sample of SIZE bytes: 0, or -ENOSPC (budget or floor). A claim is
 * used up by clair_disk_add or given back by clair_disk_unclaim. */
int clair_disk_claim(struct clair_disk *disk, uint64_t size);
void clair_disk_unclaim(struct clair_disk *disk, uint64_t size);
/* Writes a claimed sample, whole. HASH: XXH3_64bits of the bytes. Pages are not left in
 * memory (O_DIRECT or dropped behind). -EEXIST: already here (claim given back). After any
 * error the claim is given back and the tier goes on; after repeated errors it stops
 * taking samples. */
int clair_disk_add(struct clair_disk *disk, uint32_t id, const void *data, uint64_t size,
		   uint64_t hash);

/* A large sample is added in pieces, from several threads, in any order: it is there after
 * the commit, with a hash a piece. */
#define CLAIR_DISK_PIECE (4u << 20) /* bytes of each piece but the last; goes to disk */
struct clair_disk_writer;
/* Claims the room of sample ID, in one run of bytes. 0, -ENOSPC (budget or floor),
 * -EEXIST (already here), or another errno. */
int clair_disk_begin(struct clair_disk *disk, uint32_t id, struct clair_disk_writer **out);
/* Writes piece number PIECE, once. HASH: XXH3_64bits of its bytes. 0 or a negative errno,
 * after which the commit fails too. Pages are not left in memory. */
int clair_disk_write(struct clair_disk_writer *writer, uint32_t piece, const void *data,
		     size_t size, uint64_t hash);
/* Takes WRITER, of which every piece was written: 0, -EEXIST, or a negative errno, and then
 * the sample is not here. */
int clair_disk_commit(struct clair_disk_writer *writer);
/* Takes WRITER and gives its room back. NULL is taken. */
void clair_disk_abort(struct clair_disk_writer *writer);
/* A piece that a read found damaged (-EBADMSG) and DATA from the source, which replaces it
 * when it has the piece's hash. 0; -ENOENT: no such piece; -EBADMSG: the source is another
 * one, the sample is forgotten. */
int clair_disk_mend(struct clair_disk *disk, uint32_t id, uint32_t piece, const void *data);

/* Reads the whole sample into BUFFER (at least its size) and checks it: 0, -ENOENT,
 * -EBADMSG (damaged: the caller goes to the source. It is forgotten, unless it was added in
 * pieces: then the damaged one may be mended), -EIO…; HASH may be NULL.
 * BUFFER may be of any alignment; 4096 is faster. */
int clair_disk_read(struct clair_disk *disk, uint32_t id, void *buffer, uint64_t *hash);
/* A part, of a large file. Each piece is checked whenever the whole of it is read, and
 * before the first part of it is given out since the tier was opened; a sample that was not
 * added in pieces is checked whole, once. 0 or as clair_disk_read. */
int clair_disk_pread(struct clair_disk *disk, uint32_t id, void *buffer, size_t size,
		     uint64_t offset);
/* The sample is not right any more (the source changed). */
void clair_disk_forget(struct clair_disk *disk, uint32_t id);

struct clair_disk_usage {
	uint64_t samples, bytes; /* bytes of samples */
	uint64_t capacity;       /* bytes of samples that fit as far as can be told now */
	uint64_t errors;         /* I/O errors since open */
	uint64_t damaged;        /* checksums that were wrong since open */
	bool full;
};
void clair_disk_usage(struct clair_disk *disk, struct clair_disk_usage *usage);
const char *clair_disk_path(const struct clair_disk *disk);

/* `clairfs verify`: reads everything under PATH without a catalog, prints a line a
 * damaged sample to REPORT, counts; with REPAIR damaged samples are forgotten. */
struct clair_disk_check {
	uint64_t samples, bytes, damaged;
	bool complete; /* false: the index's end was torn, what follows is lost */
};
int clair_disk_verify(const char *path, bool repair, FILE *report,
		      struct clair_disk_check *out, char **error);

#endif
