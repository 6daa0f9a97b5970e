/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MANIFEST_H
#define CLAIR_MANIFEST_H

#include "catalog.h"

/* Files under the source that name other files of it (csv, tsv, txt, json, jsonl, …): their
 * order may be a job's dataset order. */

struct clair_manifest_list {
	uint32_t manifest; /* the file that says it */
	char column[48];   /* which of its columns or keys */
	uint32_t *ids;     /* owned; no file twice */
	uint32_t count;
};

struct clair_manifests {
	struct clair_manifest_list *lists;
	size_t count, room;
};

/* Reads a file of the source: all of it, or -errno. TEXT (heap, the caller frees) ends with a
 * NUL beyond SIZE. */
typedef int clair_manifest_read(void *arg, uint32_t id, char **text, size_t *size);

/* All lists that name most of the COUNT files OPENED. Names are resolved by as much of their
 * path as is there, an ending may be missing. -ENOMEM, or 0. */
int clair_manifests_find(const struct clair_catalog *catalog, clair_manifest_read *read,
			 void *arg, const uint32_t *opened, size_t count,
			 struct clair_manifests *out);
void clair_manifests_finish(struct clair_manifests *manifests);

#endif
