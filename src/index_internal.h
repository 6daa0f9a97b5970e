/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_INDEX_INTERNAL_H
#define CLAIR_INDEX_INTERNAL_H

#include "catalog.h"

/* Shared by index.c, index_find.c, index_compare.c and index_splits.c only. */

/* A name found below the indexed folder, in the path that its loader sees. Small: there may
 * be many millions. */
struct found_item {
	uint32_t folder; /* number of the folder in which it was found */
	uint32_t entry;  /* catalog id of the name: a file, a link to one, a broken link */
	uint32_t to;     /* of the file that it leads to; a broken link's own */
};

struct found_folder {
	char *path;     /* as the loader sees it: "" or ends in a slash */
	uint32_t begin; /* its items are [begin, end) until they are sorted */
	uint32_t end;
};

struct found {
	const struct clair_catalog *catalog;
	struct found_folder *folders; /* in os.walk's order, top down */
	uint32_t folder_count, folder_room;
	struct found_item *items;
	uint32_t count, room;
};

enum {
	FIND_FOLLOW = 1,    /* folders that are links, too */
	FIND_CLASSES = 2,   /* nothing beside the classes (the first level's files) */
	FIND_ONE_LEVEL = 4, /* no folders in folders of the first level */
	FIND_VISIBLE = 8,   /* names that begin with a dot are left out */
	FIND_PUBLIC = 16,   /* names that begin with two underscores, too */
	FIND_FLAT = 32,     /* only what is in the folder itself */
};

/* EXTENSIONS: NULL-terminated, with the dot, compared without regard to ASCII case; NULL:
 * all names. 0, -ENOMEM, -ELOOP (links make it endless). The caller finishes in any
 * case. */
int clair_found_find(struct found *found, uint32_t folder, const char *const *extensions,
		     unsigned flags);
void clair_found_finish(struct found *found);
bool clair_found_extension(const char *name, const char *const *extensions);

static inline const char *found_name(const struct found *f, const struct found_item *i)
{
	return clair_catalog_name(f->catalog, i->entry);
}

/* As Python compares strings that it decoded from file names: by code point, a byte that
 * is not UTF-8 as U+DC00 + byte. */
int clair_compare_python(const char *a, const char *b);
/* The same for two strings each that are put together; REST may be "". */
int clair_compare_python2(const char *a, const char *a_rest, const char *b,
			  const char *b_rest);

/* For qsort_r; ARG is the struct found. */
typedef int found_compare(const void *a, const void *b, void *arg);
found_compare clair_by_path;     /* whole path, as Python */
found_compare clair_by_bytes;    /* whole path, bytewise */
found_compare clair_by_basename; /* name, then path, as Python */
found_compare clair_by_natural;  /* timm's natural key */
found_compare clair_by_label_down; /* NoPFS: first folder + name without a slash, descending */

/* Orders of folders (const struct found_folder *): the class, then the path as a string;
 * the path as a string; bytewise. */
found_compare clair_folders_by_class;
found_compare clair_folders_by_path;
found_compare clair_folders_by_bytes;

/* Leaves the items of SPLIT (train, validation, test) as Hugging Face's file patterns
 * find them. */
void clair_found_keep_split(struct found *found, const char *split);

#endif
