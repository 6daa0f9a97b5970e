/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SOURCE_H
#define CLAIR_SOURCE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "catalog.h"
#include "stats.h"

/* The folder under the mount, on the PFS: reads that count, leave no second copy in
 * memory, and are tried again when the PFS stumbles. Thread-safe; no locks. */
struct clair_source;
struct clair_source_file;

/* ROOT_FD (O_PATH or O_RDONLY folder) is taken. Catalog and stats outlive it. */
int clair_source_new(int root_fd, const struct clair_catalog *catalog,
		     struct clair_stats *stats, struct clair_source **out);
void clair_source_free(struct clair_source *source);
int clair_source_root(const struct clair_source *source); /* stays the source's */

/* Opens the regular file ID (RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH), one open. Checks it
 * against the catalog: -ESTALE when size or mtime differ (it changed), -ENOENT when it is
 * gone; EIO, ESTALE of the PFS itself are retried a few times first. */
int clair_source_open(struct clair_source *source, uint32_t id,
		      struct clair_source_file **out);
/* The same, without the check: for a file that is known to have changed. */
int clair_source_open_changed(struct clair_source *source, uint32_t id,
			      struct clair_source_file **out);
void clair_source_close(struct clair_source_file *file); /* takes NULL */
/* Asks for the attributes of an open file again: 0, -ESTALE: changed or removed, or another
 * errno. */
int clair_source_recheck(struct clair_source_file *file);
/* The same by what the client knows without asking the PFS: -ESTALE when size or time changed
 * since the catalog, so that what was read may be of two versions; else 0. */
int clair_source_unchanged(struct clair_source_file *file);
int clair_source_stat(struct clair_source *source, uint32_t id, struct stat *st);
/* Asks for the file's attributes by its name: 0: they are the catalog's; -ESTALE: they are not; or
 * another errno. */
int clair_source_check(struct clair_source *source, uint32_t id);
/* Reads until SIZE bytes or the end of the file: bytes read (short only at the end), or a
 * negative errno after retries. What the source's file system holds in memory is read
 * from there (RWF_NOWAIT); else by O_DIRECT where it works and BUFFER and OFFSET are
 * aligned to 4096 (then BUFFER must have room for SIZE rounded up to 4096); else the
 * pages are dropped behind. Several threads may read one file. */
ssize_t clair_source_read(struct clair_source_file *file, void *buffer, size_t size,
			  uint64_t offset);

#endif
