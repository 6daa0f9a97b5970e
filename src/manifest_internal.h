/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MANIFEST_INTERNAL_H
#define CLAIR_MANIFEST_INTERNAL_H

#include "manifest.h"
#include "sampler.h"

/* Shared by manifest.c, manifest_names.c and manifest_text.c only. */

/* Columns of a table, or keys of a JSON file, that are followed. */
#define MANIFEST_COLUMNS 24

/* --- names (manifest_names.c) ------------------------------------------------------------ */

/* Files by their name, and by their name without its ending. */
struct names {
	const struct clair_catalog *catalog;
	uint32_t *ids; /* a hash table of (file, which of its names) */
	uint32_t mask;
};

/* Of the files that have the same ending as one of the COUNT files OPENED. 0 or -ENOMEM. */
int clair_names_init(struct names *names, const struct clair_catalog *catalog,
		     const uint32_t *opened, size_t count);
void clair_names_finish(struct names *names);
/* The one file that TEXT names; CLAIR_NO_ID: none, or several. */
uint32_t clair_names_find(const struct names *names, const char *text, size_t length);

/* --- text (manifest_text.c) ---------------------------------------------------------------- */

struct column {
	char name[48];
	struct clair_indices ids;
	struct clair_indices keys; /* JSON: the "id" beside each, as far as it is known */
	uint64_t strange;          /* values that name no file */
};

struct table {
	const struct names *names;
	struct column columns[MANIFEST_COLUMNS];
	unsigned count;
	struct clair_indices annotated; /* JSON: the numbers named "image_id" */
};

/* A table of fields that are divided by commas, tabs, or blanks; or names, one a line. */
int clair_manifest_table(struct table *t, char *text, size_t size);
/* JSON, or a JSON value a line. Damaged text ends it. */
int clair_manifest_json(struct table *t, char *text, size_t size);

#endif
