/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_INDEX_H
#define CLAIR_INDEX_H

#include "catalog.h"

/* Dataset orders: how a loader numbers the samples of a folder. One function a name, in
 * one table (index.c). */

struct clair_index {
	const char *name; /* as in -o index=NAME */
	const char *help;
};
const struct clair_index *clair_index_at(size_t i); /* NULL past the end */
/* Whether NAME can be given to clair_index_make; what a file holds is not looked at. */
bool clair_index_exists(const char *name);

/* IDS (heap, the caller frees): catalog ids of the files of the samples under FOLDER, by
 * sample number. NAME: an index of the table, `list:FILE` (paths relative to the source
 * or to FOLDER, one a line; a CSV's column with list:FILE:COLUMN), coco:FILE, json:FILE, or `auto`
 * (imagefolder when FOLDER has at least two class folders with pictures, else sorted).
 * Files reached by links inside the source count as the file they lead to. 0, -ENOMEM,
 * -EINVAL with *error (unknown name, unreadable list, a line that names no file). */
int clair_index_make(const struct clair_catalog *catalog, uint32_t folder,
		     const char *name, uint32_t **ids, uint32_t *count, char **error);
/* The same, but a link that is a file to the loader is given as itself: to show the path
 * that the loader opens. */
int clair_index_names(const struct clair_catalog *catalog, uint32_t folder,
		      const char *name, uint32_t **ids, uint32_t *count, char **error);
/* What `auto` means for FOLDER; any other NAME is returned as it is. */
const char *clair_index_meant(const struct clair_catalog *catalog, uint32_t folder,
			      const char *name);

#endif
