/* SPDX-License-Identifier: BSD-3-Clause */
#include "index.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index_list.h"
#include "words.h"

/* Folders below folders, links followed: deeper ones are a loop. */
#define MAX_DEPTH 128

/* A file found below the folder, with the path that its loader sees. */
struct item {
	char *path;      /* relative to the indexed folder */
	size_t name;     /* where the file's name begins in it */
	uint32_t id;     /* of the file that it leads to, or of the broken link */
	uint32_t number; /* in the order of finding: readdir's */
};

struct items {
	const struct clair_catalog *catalog;
	struct item *at;
	size_t count, room;
	bool images; /* only names with a picture's extension */
	bool follow; /* folders that are links */
};

typedef int compare_items(const void *a, const void *b);

/* --- comparing as Python compares strings ------------------------------------------ */

/* The code point at *P, as Python decodes file names: a byte that is not UTF-8 becomes
 * U+DC00 + byte. */
static uint32_t code_point(const unsigned char **p)
{
	const unsigned char *s = *p;
	unsigned more = s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : s[0] < 0xf5 ? 3 : 0;
	uint32_t c = s[0];

	if (s[0] < 0x80) {
		*p += 1;
		return c;
	}
	c &= 0x3f >> more;
	for (unsigned i = 1; more && i <= more; i++) {
		if ((s[i] & 0xc0) != 0x80)
			more = 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (!more || (more == 2 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) ||
	    (more == 3 && (c < 0x10000 || c > 0x10ffff))) {
		*p += 1;
		return 0xdc00 + s[0];
	}
	*p += more + 1;
	return c;
}

static int compare_python(const char *a, const char *b)
{
	const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b;

	while (*x && *x == *y && *x < 0x80) {
		x++;
		y++;
	}
	while (*x && *y) {
		uint32_t c = code_point(&x), d = code_point(&y);
		if (c != d)
			return c < d ? -1 : 1;
	}
	return (*x != 0) - (*y != 0);
}

static int by_path(const void *a, const void *b)
{
	return compare_python(((const struct item *)a)->path,
			      ((const struct item *)b)->path);
}

/* Bytewise, as C++ and TensorFlow do. */
static int by_bytes(const void *a, const void *b)
{
	return strcmp(((const struct item *)a)->path, ((const struct item *)b)->path);
}

static int by_finding(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static int by_basename(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	int order = compare_python(x->path + x->name, y->path + y->name);

	return order ? order : by_path(a, b);
}

/* The first component, then the folder's path as a string, then the name: torchvision
 * sorts os.walk's folders of each class by their paths. */
static int by_class(const void *a, const void *b)
{
	const struct item *x = a, *y = b;
	size_t n = strcspn(x->path, "/"), m = strcspn(y->path, "/");
	char *p = x->path, *q = y->path;
	char at_x = p[n], at_y = q[m];

	p[n] = q[m] = '\0';
	int order = compare_python(p, q);
	p[n] = at_x;
	q[m] = at_y;
	if (order)
		return order;
	/* Same class: the folders as strings (a qsort's arguments are ours to cut). */
	if (x->name && y->name && x != y) {
		p[x->name - 1] = q[y->name - 1] = '\0';
		order = compare_python(p, q);
		p[x->name - 1] = q[y->name - 1] = '/';
	}
	return order ? order : compare_python(p + x->name, q + y->name);
}

/* timm's natural key over the lower-cased path: runs of digits compare as numbers. */
static int by_natural(const void *a, const void *b)
{
	const char *p = ((const struct item *)a)->path, *q = ((const struct item *)b)->path;

	for (;;) {
		/* Text up to the next digits; both begin with text, maybe empty. */
		while (*p && *q && !isdigit((unsigned char)*p) &&
		       !isdigit((unsigned char)*q)) {
			int c = tolower((unsigned char)*p), d = tolower((unsigned char)*q);
			if (c != d)
				return c < d ? -1 : 1;
			p++;
			q++;
		}
		bool p_text = *p && !isdigit((unsigned char)*p);
		bool q_text = *q && !isdigit((unsigned char)*q);
		if (p_text || q_text) /* the shorter text is a prefix of the other */
			return p_text ? 1 : -1;
		if (!*p || !*q)
			return (*p != 0) - (*q != 0);
		while (*p == '0')
			p++;
		while (*q == '0')
			q++;
		size_t n = strspn(p, "0123456789"), m = strspn(q, "0123456789");
		if (n != m)
			return n < m ? -1 : 1;
		int order = strncmp(p, q, n);
		if (order)
			return order;
		p += n;
		q += m;
	}
}

/* --- finding ------------------------------------------------------------------------ */

static bool is_image(const char *name)
{
	static const char *const extensions[] = { ".jpg", ".jpeg", ".png", ".ppm", ".bmp",
						  ".pgm", ".tif",  ".tiff", ".webp" };
	size_t n = strlen(name);

	for (size_t i = 0; i < sizeof extensions / sizeof extensions[0]; i++) {
		size_t m = strlen(extensions[i]);
		if (n >= m && !strcasecmp(name + n - m, extensions[i]))
			return true;
	}
	return false;
}

static int add_item(struct items *items, const char *prefix, const char *name, uint32_t id)
{
	struct item *item;

	if (items->count == items->room) {
		size_t room = items->room ? items->room * 2 : 1024;
		struct item *at = realloc(items->at, room * sizeof *at);
		if (!at)
			return -ENOMEM;
		items->at = at;
		items->room = room;
	}
	item = &items->at[items->count];
	if (asprintf(&item->path, "%s%s", prefix, name) < 0)
		return -ENOMEM;
	item->name = strlen(prefix);
	item->id = id;
	item->number = (uint32_t)items->count++;
	return 0;
}

static int find_items(struct items *items, uint32_t folder, const char *prefix, int depth)
{
	const struct clair_catalog *c = items->catalog;
	const struct clair_entry *e = clair_catalog_entry(c, folder);
	int r = 0;

	if (depth > MAX_DEPTH)
		return 0;
	/* As os.walk: a folder's files, then what is below its folders. */
	for (int pass = 0; pass < 2 && r == 0; pass++) {
		for (uint32_t i = 0; i < e->count && r == 0; i++) {
			uint32_t id = e->first + i, to = clair_catalog_resolve(c, id);
			const char *name = clair_catalog_name(c, id);
			bool is_folder = to != CLAIR_NO_ID &&
					 clair_catalog_entry(c, to)->kind == CLAIR_FOLDER;
			bool linked = to != id;

			if (!is_folder && pass == 0 && (!items->images || is_image(name)))
				r = add_item(items, prefix, name,
					     to == CLAIR_NO_ID ? id : to);
			if (is_folder && pass == 1 && (!linked || items->follow)) {
				autofree char *below = NULL;
				if (asprintf(&below, "%s%s/", prefix, name) < 0)
					return -ENOMEM;
				r = find_items(items, to, below, depth + 1);
			}
		}
	}
	return r;
}

static void free_items(struct items *items)
{
	for (size_t i = 0; i < items->count; i++)
		free(items->at[i].path);
	free(items->at);
}

/* --- the table ---------------------------------------------------------------------- */

struct method {
	struct clair_index index;
	compare_items *compare;
	bool images, classes_only;
};

static const struct method methods[] = {
	{ { "imagefolder", "torchvision's ImageFolder: classes, their folders' paths, names" },
	  by_class, true, true },
	{ { "sorted", "all files by their whole path, as Python sorts strings" }, by_path,
	  false, false },
	{ { "walk", "os.walk: readdir's order, files before folders" }, by_finding, false,
	  false },
	{ { "sorted-images", "pictures by their whole path (Hugging Face, Ultralytics)" },
	  by_path, true, false },
	{ { "walk-images", "pictures in os.walk's order" }, by_finding, true, false },
	{ { "bytes", "all files by their whole path, bytewise (TensorFlow, C++)" }, by_bytes,
	  false, false },
	{ { "natural", "pictures by timm's natural key over the lower-cased path" },
	  by_natural, true, false },
	{ { "basename", "all files by their name without folders" }, by_basename, false,
	  false },
};
#define METHODS (sizeof methods / sizeof methods[0])

const struct clair_index *clair_index_at(size_t i)
{
	static const struct clair_index list = {
		"list:FILE", "the paths in FILE, one a line; list:FILE:COLUMN of a CSV"
	};

	return i < METHODS ? &methods[i].index : i == METHODS ? &list : NULL;
}

static int make_by(const struct method *m, const struct clair_catalog *catalog,
		   uint32_t folder, uint32_t **ids, uint32_t *count)
{
	struct items items = { .catalog = catalog, .images = m->images,
			       .follow = m->classes_only };

	int r = find_items(&items, folder, "", 0);
	if (r == 0) {
		size_t kept = 0;
		/* ImageFolder does not look at files beside the classes. */
		for (size_t i = 0; i < items.count; i++) {
			if (m->classes_only && !items.at[i].name)
				free(items.at[i].path);
			else
				items.at[kept++] = items.at[i];
		}
		items.count = kept;
		if (kept)
			qsort(items.at, kept, sizeof *items.at, m->compare);
		uint32_t *list = malloc(sizeof *list * (kept ? kept : 1));
		for (size_t i = 0; list && i < kept; i++)
			list[i] = items.at[i].id;
		*ids = list ? list : *ids;
		*count = (uint32_t)kept;
		r = list ? 0 : -ENOMEM;
	}
	free_items(&items);
	return r;
}

/* Two folders with a picture somewhere below look like classes. */
static bool has_classes(const struct clair_catalog *c, uint32_t folder)
{
	const struct clair_entry *e = clair_catalog_entry(c, folder);
	unsigned classes = 0;

	for (uint32_t i = 0; i < e->count && classes < 2; i++) {
		uint32_t id = clair_catalog_resolve(c, e->first + i);
		struct items items = { .catalog = c, .images = true };

		if (id == CLAIR_NO_ID || clair_catalog_entry(c, id)->kind != CLAIR_FOLDER)
			continue;
		if (find_items(&items, id, "", 0) == 0 && items.count)
			classes++;
		free_items(&items);
	}
	return classes >= 2;
}

int clair_index_make(const struct clair_catalog *catalog, uint32_t folder, const char *name,
		     uint32_t **ids, uint32_t *count, char **error)
{
	if (!strcmp(name, "auto"))
		name = has_classes(catalog, folder) ? "imagefolder" : "sorted";
	if (!strncmp(name, "list:", 5))
		return clair_index_list(catalog, folder, name + 5, ids, count, error);
	for (size_t i = 0; i < METHODS; i++)
		if (!strcmp(methods[i].index.name, name))
			return make_by(&methods[i], catalog, folder, ids, count);
	return clair_bad(error,
			 "index=%s: there is no such dataset order; `clairfs order --list` "
			 "shows them",
			 name);
}
