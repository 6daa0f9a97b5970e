/* SPDX-License-Identifier: BSD-3-Clause */
#include "catalog_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Links followed before it is called a loop, as the kernel does. */
#define MAX_LINKS 40

static_assert(sizeof(struct clair_entry) == 40, "entries go to disk and the network");

void clair_catalog_free(struct clair_catalog *c)
{
	if (!c)
		return;
	if (c->block) {
		free(c->block);
	} else {
		free(c->entries);
		free(c->sorted);
		free(c->owners);
		free(c->names);
	}
	free(c->root_path);
	free(c);
}

static int by_name(const void *a, const void *b, void *arg)
{
	const struct clair_catalog *c = arg;
	const struct clair_entry *x = &c->entries[*(const uint32_t *)a];
	const struct clair_entry *y = &c->entries[*(const uint32_t *)b];

	return strcmp(c->names + x->name, c->names + y->name);
}

static int sort_children(struct clair_catalog *c)
{
	c->sorted = malloc(sizeof *c->sorted * c->count);
	if (!c->sorted)
		return -ENOMEM;
	for (uint32_t i = 0; i < c->count; i++)
		c->sorted[i] = i;
	for (uint32_t i = 0; i < c->count; i++) {
		const struct clair_entry *e = &c->entries[i];
		if (e->kind == CLAIR_FOLDER && e->count > 1)
			qsort_r(c->sorted + e->first, e->count, sizeof *c->sorted, by_name,
				c);
	}
	return 0;
}

int clair_catalog_complete(struct clair_catalog *c, bool sort)
{
	int r = sort ? sort_children(c) : 0;

	if (r < 0)
		return r;
	c->bytes = 0;
	for (uint32_t i = 0; i < c->count; i++)
		if (c->entries[i].kind == CLAIR_FILE)
			c->bytes += c->entries[i].size;
	c->hash = XXH3_64bits_withSeed(c->entries, sizeof *c->entries * c->count,
				       XXH3_64bits(c->names, c->names_size));
	return 0;
}

int clair_catalog_set_root_path(struct clair_catalog *c, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(c->root_path);
	c->root_path = copy;
	return 0;
}

uint32_t clair_catalog_count(const struct clair_catalog *c)
{
	return c->count;
}

const struct clair_entry *clair_catalog_entry(const struct clair_catalog *c, uint32_t id)
{
	return &c->entries[id];
}

const char *clair_catalog_name(const struct clair_catalog *c, uint32_t id)
{
	return c->names + c->entries[id].name;
}

const char *clair_catalog_target(const struct clair_catalog *c, uint32_t id)
{
	return c->names + c->entries[id].first;
}

struct clair_owner clair_catalog_owner(const struct clair_catalog *c, uint32_t id)
{
	return c->owners[c->entries[id].owner];
}

uint64_t clair_catalog_bytes(const struct clair_catalog *c)
{
	return c->bytes;
}

uint64_t clair_catalog_hash(const struct clair_catalog *c)
{
	return c->hash;
}

static int compare(const char *name, const char *key, size_t length)
{
	int order = strncmp(name, key, length);

	return order ? order : name[length] != '\0';
}

uint32_t clair_catalog_child(const struct clair_catalog *c, uint32_t folder,
			     const char *name, size_t length)
{
	const struct clair_entry *e = &c->entries[folder];

	if (e->kind != CLAIR_FOLDER || memchr(name, '\0', length))
		return CLAIR_NO_ID;
	uint32_t low = e->first, high = e->first + e->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		uint32_t id = c->sorted[middle];
		int order = compare(c->names + c->entries[id].name, name, length);
		if (order == 0)
			return id;
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return CLAIR_NO_ID;
}

/* Walks PATH from FOLDER. With LINKS >= 0 links are followed, that many at most. */
static uint32_t walk(const struct clair_catalog *c, uint32_t folder, const char *path,
		     int *links);

static uint32_t follow(const struct clair_catalog *c, uint32_t id, int *links)
{
	while (id != CLAIR_NO_ID && c->entries[id].kind == CLAIR_LINK) {
		const char *target = clair_catalog_target(c, id);
		uint32_t from = c->entries[id].parent;

		if (--*links < 0)
			return CLAIR_NO_ID;
		if (*target == '/') {
			size_t n = c->root_path ? strlen(c->root_path) : 0;
			if (!n || strncmp(target, c->root_path, n) ||
			    (target[n] && target[n] != '/'))
				return CLAIR_NO_ID;
			target += n;
			from = 0;
		}
		id = walk(c, from, target, links);
	}
	return id;
}

static uint32_t walk(const struct clair_catalog *c, uint32_t id, const char *path,
		     int *links)
{
	while (id != CLAIR_NO_ID) {
		path += strspn(path, "/");
		size_t n = strcspn(path, "/");
		if (!n)
			break;
		if (links)
			id = follow(c, id, links);
		if (id == CLAIR_NO_ID)
			break;
		if (n == 2 && !strncmp(path, "..", 2)) {
			/* Above the root is outside of the source. */
			if (id == 0 || c->entries[id].kind != CLAIR_FOLDER)
				return CLAIR_NO_ID;
			id = c->entries[id].parent;
		} else if (n != 1 || *path != '.') {
			id = clair_catalog_child(c, id, path, n);
		}
		path += n;
	}
	return id;
}

uint32_t clair_catalog_find(const struct clair_catalog *c, const char *path)
{
	return walk(c, 0, path, NULL);
}

uint32_t clair_catalog_find_through(const struct clair_catalog *c, const char *path)
{
	int links = MAX_LINKS;

	return walk(c, 0, path, &links);
}

uint32_t clair_catalog_resolve(const struct clair_catalog *c, uint32_t id)
{
	int links = MAX_LINKS;

	return follow(c, id, &links);
}

size_t clair_catalog_path(const struct clair_catalog *c, uint32_t id, char *buffer,
			  size_t size)
{
	size_t length = 0;

	for (uint32_t i = id; i; i = c->entries[i].parent)
		length += strlen(clair_catalog_name(c, i)) + (c->entries[i].parent != 0);
	if (!size)
		return length;
	/* Filled from the end; what does not fit is cut there. */
	size_t end = length;
	for (uint32_t i = id; i; i = c->entries[i].parent) {
		const char *name = clair_catalog_name(c, i);
		size_t n = strlen(name);

		end -= n;
		for (size_t k = 0; k < n && end + k < size; k++)
			buffer[end + k] = name[k];
		if (c->entries[i].parent && --end < size)
			buffer[end] = '/';
	}
	buffer[length < size ? length : size - 1] = '\0';
	return length;
}
