/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CATALOG_H
#define CLAIR_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The immutable table of what lies under the source, made by one parallel walk. Ids are
 * dense, 0 is the root; a folder's children have consecutive ids, in the order in which
 * the source's readdir gave them (kept stable over mounts); a parent's id is lower than
 * its children's. No lock is needed after load. About 40 bytes an entry + the names. */

#define CLAIR_NO_ID UINT32_MAX

enum clair_kind {
	CLAIR_FOLDER,
	CLAIR_FILE,
	CLAIR_LINK,
	CLAIR_SPECIAL, /* fifo, socket, device: shown, never staged */
};

struct clair_entry {
	uint64_t size;    /* bytes; of a link, the length of its target */
	int64_t mtime_ns; /* since the epoch */
	uint32_t parent;  /* id; the root's is 0 */
	uint32_t name;    /* offset of the NUL-terminated name in the names */
	uint32_t first;   /* folder: first child; link: offset of its target in the names */
	uint32_t count;   /* folder: children; file: number of hard links; special: its
			     type (S_IFMT) */
	uint16_t mode;    /* permissions and set-id bits (07777) */
	uint16_t owner;   /* index into the owners */
	uint8_t kind;     /* enum clair_kind */
	uint8_t flags;
	uint8_t zero[2];
};

enum {
	CLAIR_UNREADABLE = 1, /* a folder that could not be listed: opening asks the source */
};

struct clair_owner {
	uint32_t uid, gid;
};

struct clair_catalog;

/* Called now and then during a long walk, from one thread at a time. */
typedef void clair_walk_progress(void *arg, uint64_t entries, uint64_t folders_left);

/* Walks the folder ROOT_FD (not closed) with THREADS threads (0: a sensible number).
 * One opendir a folder, one stat an entry. Names are bytes, any but '/' and NUL. Does not
 * follow links and does not leave the source's file system boundaries' contents out
 * (mounts below are walked). 0 or a negative errno (the root cannot be read, memory). */
int clair_catalog_walk(int root_fd, unsigned threads, clair_walk_progress *progress,
		       void *arg, struct clair_catalog **out);
/* Writes it to FILE (whole or not at all: temporary name + rename), with a checksum. */
int clair_catalog_save(const struct clair_catalog *catalog, const char *file);
/* Loads FILE and checks it: checksum, version, and against the source ROOT_FD: the
 * root's identity, and every folder's mtime (one stat a folder, in parallel). -ESTALE: it
 * does not describe this source (any more); -EBADMSG: damaged; -EILSEQ: it is some other
 * file, which nobody should overwrite; other errno. */
int clair_catalog_load(const char *file, int root_fd, struct clair_catalog **out);
/* Writes the saved form to FD, at its offset; and makes a catalog of such bytes (sent by another
 * node: checked like a file). */
int clair_catalog_write(const struct clair_catalog *catalog, int fd);
int clair_catalog_unpack(const void *bytes, size_t size, struct clair_catalog **out);
void clair_catalog_free(struct clair_catalog *catalog);

uint32_t clair_catalog_count(const struct clair_catalog *catalog);
const struct clair_entry *clair_catalog_entry(const struct clair_catalog *catalog,
					      uint32_t id);
const char *clair_catalog_name(const struct clair_catalog *catalog, uint32_t id);
const char *clair_catalog_target(const struct clair_catalog *catalog, uint32_t id);
struct clair_owner clair_catalog_owner(const struct clair_catalog *catalog, uint32_t id);
/* The child of FOLDER with this name, CLAIR_NO_ID when there is none. O(log children). */
uint32_t clair_catalog_child(const struct clair_catalog *catalog, uint32_t folder,
			     const char *name, size_t length);
/* The id of PATH relative to the root ("" and "." are the root), no links followed. */
uint32_t clair_catalog_find(const struct clair_catalog *catalog, const char *path);
/* The same, but links on the way are followed inside the source; the last name is not. */
uint32_t clair_catalog_find_through(const struct clair_catalog *catalog, const char *path);
/* The file or folder that ID leads to when its links are followed inside the source:
 * ID itself unless it is a link; CLAIR_NO_ID for a dangling link, a loop, or one that
 * leaves the source. */
uint32_t clair_catalog_resolve(const struct clair_catalog *catalog, uint32_t id);
/* Where the source is (absolute, copied): absolute links below it lead into the source.
 * Before the catalog is shared between threads. 0 or -ENOMEM. */
int clair_catalog_set_root_path(struct clair_catalog *catalog, const char *path);
/* The path relative to the root, without a leading slash ("" for the root). Returns its
 * length as snprintf does (may be >= SIZE: cut). */
size_t clair_catalog_path(const struct clair_catalog *catalog, uint32_t id, char *buffer,
			  size_t size);
/* Sum of the sizes of all regular files. */
uint64_t clair_catalog_bytes(const struct clair_catalog *catalog);
/* XXH3 over everything that nodes must agree on. */
uint64_t clair_catalog_hash(const struct clair_catalog *catalog);

#endif
