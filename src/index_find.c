/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding the names below a folder as os.walk does, top down. */
#include "index_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"

struct finder {
	struct found *found;
	const char *const *extensions;
	unsigned flags;
	uint64_t visits; /* folders that may still be visited */
};

/* The folders from the top to here, to see links that lead back. */
struct chain {
	const struct chain *above;
	uint32_t folder;
	unsigned depth;
};

void clair_found_finish(struct found *found)
{
	for (uint32_t i = 0; i < found->folder_count; i++)
		free(found->folders[i].path);
	free(found->folders);
	free(found->items);
	*found = (struct found){ 0 };
}

bool clair_found_extension(const char *name, const char *const *extensions)
{
	size_t n = strlen(name);

	for (; *extensions; extensions++) {
		size_t m = strlen(*extensions);
		if (n >= m && !strcasecmp(name + n - m, *extensions))
			return true;
	}
	return false;
}

static bool is_wanted_name(const struct finder *f, const char *name)
{
	if (f->flags & FIND_VISIBLE && *name == '.')
		return false;
	return !(f->flags & FIND_PUBLIC) || strncmp(name, "__", 2);
}

static int add_folder(struct found *found, char *path)
{
	if (found->folder_count == found->folder_room) {
		uint32_t room = found->folder_room ? found->folder_room * 2 : 64;
		struct found_folder *folders =
			realloc(found->folders, room * sizeof *folders);
		if (!folders) {
			free(path);
			return -ENOMEM;
		}
		found->folders = folders;
		found->folder_room = room;
	}
	found->folders[found->folder_count++] =
		(struct found_folder){ path, found->count, found->count };
	return 0;
}

static int add_item(struct found *found, uint32_t folder, uint32_t entry, uint32_t to)
{
	if (found->count == found->room) {
		uint64_t room = found->room ? found->room + found->room / 2ull : 1024;
		if (room > CLAIR_NO_ID)
			return -EOVERFLOW;
		struct found_item *items = realloc(found->items, room * sizeof *items);
		if (!items)
			return -ENOMEM;
		found->items = items;
		found->room = (uint32_t)room;
	}
	found->items[found->count++] = (struct found_item){ folder, entry, to };
	return 0;
}

static bool leads_back(const struct chain *chain, uint32_t folder)
{
	for (; chain; chain = chain->above)
		if (chain->folder == folder)
			return true;
	return false;
}

/* Whether the name ID is a folder to the loader, and which one. */
static bool is_folder(const struct clair_catalog *c, uint32_t id, uint32_t *to)
{
	*to = clair_catalog_resolve(c, id);
	return *to != CLAIR_NO_ID && clair_catalog_entry(c, *to)->kind == CLAIR_FOLDER;
}

static int find_files(struct finder *f, const struct chain *here, uint32_t number)
{
	struct found *found = f->found;
	const struct clair_entry *e = clair_catalog_entry(found->catalog, here->folder);
	int r = 0;

	if (f->flags & FIND_CLASSES && !here->above)
		return 0;
	for (uint32_t i = 0; i < e->count && r == 0; i++) {
		uint32_t id = e->first + i, to;
		const char *name = clair_catalog_name(found->catalog, id);

		if ((!f->extensions || clair_found_extension(name, f->extensions)) &&
		    is_wanted_name(f, name) && !is_folder(found->catalog, id, &to))
			r = add_item(found, number, id, to == CLAIR_NO_ID ? id : to);
	}
	found->folders[number].end = found->count;
	return r;
}

static int find_in(struct finder *f, const struct chain *here, char *path)
{
	struct found *found = f->found;
	const struct clair_entry *e = clair_catalog_entry(found->catalog, here->folder);
	uint32_t number = found->folder_count;

	int r = add_folder(found, path);
	if (r == 0 && f->visits-- == 0)
		r = -ELOOP;
	if (r == 0)
		r = find_files(f, here, number);
	if (f->flags & FIND_FLAT || (f->flags & FIND_ONE_LEVEL && here->above))
		return r;
	for (uint32_t i = 0; i < e->count && r == 0; i++) {
		uint32_t id = e->first + i, to;
		const char *name = clair_catalog_name(found->catalog, id);

		if (!is_wanted_name(f, name) || !is_folder(found->catalog, id, &to))
			continue;
		/* A class may be a link even where links are not followed further down. */
		bool may = to == id || f->flags & FIND_FOLLOW ||
			   (f->flags & FIND_CLASSES && !here->above);
		if (!may || leads_back(here, to))
			continue;
		struct chain below = { here, to, here->depth + 1 };
		char *sub;
		if (asprintf(&sub, "%s%s/", found->folders[number].path, name) < 0)
			return -ENOMEM;
		r = find_in(f, &below, sub);
	}
	return r;
}

int clair_found_find(struct found *found, uint32_t folder, const char *const *extensions,
		     unsigned flags)
{
	/* Links can multiply folders without end: no data set is like that. */
	struct finder f = { found, extensions, flags,
			    1000000 + 8ull * clair_catalog_count(found->catalog) };
	struct chain top = { NULL, folder, 0 };
	char *path = strdup("");

	return path ? find_in(&f, &top, path) : -ENOMEM;
}
