/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_REMEMBER_H
#define CLAIR_REMEMBER_H

#include "catalog.h"
#include "opens.h"
#include "words.h"

/* What was found about a dataset's order, for the next run: a small JSON file; for an order
 * that stayed unknown the opens themselves, packed. Both are a first guess there, held
 * against the opens like any other. */

/* Where it is kept when there is no cache folder: $XDG_CACHE_HOME/clairfs/orders (else
 * ~/.cache/…), named by the catalog's hash. Makes the folders. 0 or a negative errno. */
int clair_remember_path(const struct clair_catalog *catalog, char *path, size_t size);
int clair_remember_save(const char *file, const struct clair_catalog *catalog,
			uint32_t folder, const struct clair_words *words);
/* -ENOENT: nothing; -EBADMSG: damaged, or of other data. WORDS must be empty. */
int clair_remember_load(const char *file, const struct clair_catalog *catalog,
			uint32_t *folder, struct clair_words *words);

/* --- opens (remember_opens.c) ---------------------------------------------------------- */

/* The dataset order in which remembered opens number the files, over the whole source. */
#define CLAIR_REMEMBER_INDEX "walk"

/* Passes as sample numbers of that order. Immutable. */
struct clair_remembered {
	unsigned char *bytes; /* the file, owned */
	uint64_t catalog;     /* the hash of what it was seen over */
	uint32_t samples;     /* files of the dataset order */
	uint32_t passes;
	uint64_t opens;   /* of all passes */
	uint32_t *counts; /* owned; of each pass */
	size_t *begins;   /* owned; where its bytes begin, [passes] = the end */
};

/* Writes the packed passes of OPENS and then NEWEST (or NULL), whole or not at all. 0 or a
 * negative errno. */
int clair_remember_save_opens(const char *file, const struct clair_opens *opens,
			      const struct clair_pass *newest);
/* -ENOENT: nothing; -EBADMSG: damaged; other errno. What catalog it is of is the caller's to
 * compare. */
int clair_remember_load_opens(const char *file, struct clair_remembered **out);
/* Pass number PASS: OUT has room for its count. -EBADMSG: damaged. */
int clair_remembered_pass(const struct clair_remembered *remembered, uint32_t pass,
			  uint32_t *out);
void clair_remembered_free(struct clair_remembered *remembered); /* takes NULL */

#endif
