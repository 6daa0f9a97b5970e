/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_INDEX_JSON_H
#define CLAIR_INDEX_JSON_H

#include "catalog.h"

/* index=coco:FILE: the pictures of a COCO annotation file by ascending id, as
 * torchvision's CocoDetection numbers them. As clair_index_make. */
int clair_index_coco(const struct clair_catalog *catalog, uint32_t folder, const char *file,
		     uint32_t **ids, uint32_t *count, char **error);
/* index=json:FILE: what the strings in FILE (JSON, or one JSON value a line) name, in the
 * order of first appearance; strings that name no file are left aside. */
int clair_index_json(const struct clair_catalog *catalog, uint32_t folder, const char *file,
		     uint32_t **ids, uint32_t *count, char **error);

#endif
