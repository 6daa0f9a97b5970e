/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CATALOG_INTERNAL_H
#define CLAIR_CATALOG_INTERNAL_H

#include "catalog.h"

/* Shared by catalog.c, catalog_walk.c and catalog_save.c only. */
struct clair_catalog {
	void *block; /* of a loaded one: all that follows points into it */
	struct clair_entry *entries;
	uint32_t count;
	uint32_t owner_count;
	uint32_t *sorted; /* for a folder: sorted[first .. first + count) are its children's
			     ids by name, bytewise */
	struct clair_owner *owners;
	char *names;
	size_t names_size;
	uint64_t root_ino; /* of the source's root, to recognise it */
	char *root_path;   /* or NULL */
	/* Derived by clair_catalog_complete. */
	uint64_t bytes, hash;
};

/* Sorts (when SORT) and derives what is not stored. 0 or -ENOMEM. */
int clair_catalog_complete(struct clair_catalog *catalog, bool sort);

#endif
