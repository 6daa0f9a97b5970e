/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_REMEMBER_H
#define CLAIR_REMEMBER_H

#include "catalog.h"
#include "words.h"

/* What was found about a dataset's order, for the next run: a small JSON file. It is a first
 * guess there, held against the opens like any other. */

/* Where it is kept when there is no cache folder: $XDG_CACHE_HOME/clairfs/orders (else
 * ~/.cache/…), named by the catalog's hash. Makes the folders. 0 or a negative errno. */
int clair_remember_path(const struct clair_catalog *catalog, char *path, size_t size);
int clair_remember_save(const char *file, const struct clair_catalog *catalog,
			uint32_t folder, const struct clair_words *words);
/* -ENOENT: nothing; -EBADMSG: damaged, or of other data. WORDS must be empty. */
int clair_remember_load(const char *file, const struct clair_catalog *catalog,
			uint32_t *folder, struct clair_words *words);

#endif
