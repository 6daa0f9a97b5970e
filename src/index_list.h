/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_INDEX_LIST_H
#define CLAIR_INDEX_LIST_H

#include "catalog.h"

/* index=list:SPEC, SPEC = FILE or FILE:COLUMN (a CSV's column, by name or number from 0).
 * As clair_index_make. */
int clair_index_list(const struct clair_catalog *catalog, uint32_t folder, const char *spec,
		     uint32_t **ids, uint32_t *count, char **error);
/* What PATH names, relative to FOLDER or to the source; links on the way are followed, the
 * last one is not. CLAIR_NO_ID: nothing. */
uint32_t clair_index_find_path(const struct clair_catalog *catalog, uint32_t folder,
			       const char *path);

#endif
