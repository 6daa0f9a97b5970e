/* SPDX-License-Identifier: BSD-3-Clause */
#include "manifest_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cleanup.h"

/* Places of the table hold 2 * id + 1 for a name without its ending, 2 * id for a whole one. */
#define FREE UINT32_MAX
#define ENDINGS 8
/* Files with the same name that are looked at. */
#define ALIKE 4096

static size_t stem_length(const char *name, size_t length)
{
	for (size_t i = length; i-- > 1;)
		if (name[i] == '.')
			return i;
	return length;
}

static const char *ending_of(const char *name)
{
	return name + stem_length(name, strlen(name));
}

static void put(struct names *n, const char *name, size_t length, uint32_t value)
{
	uint32_t at = (uint32_t)XXH3_64bits(name, length) & n->mask;

	while (n->ids[at] != FREE)
		at = (at + 1) & n->mask;
	n->ids[at] = value;
}

int clair_names_init(struct names *n, const struct clair_catalog *c, const uint32_t *opened,
		     size_t count)
{
	const char *endings[ENDINGS];
	unsigned known = 0;
	uint32_t all = clair_catalog_count(c), wanted = 0, size = 64;
	autofree uint8_t *take = calloc(1, all);

	*n = (struct names){ .catalog = c };
	if (!take)
		return -ENOMEM;
	for (size_t i = 0; i < count && known < ENDINGS; i++) {
		const char *ending = ending_of(clair_catalog_name(c, opened[i]));
		unsigned k = 0;

		while (k < known && strcmp(endings[k], ending))
			k++;
		if (k == known)
			endings[known++] = ending;
	}
	for (uint32_t id = 1; id < all; id++) {
		if (clair_catalog_entry(c, id)->kind != CLAIR_FILE)
			continue;
		const char *ending = ending_of(clair_catalog_name(c, id));
		for (unsigned k = 0; k < known && !take[id]; k++)
			take[id] = !strcmp(endings[k], ending);
		wanted += take[id];
	}
	while (size < 4ull * wanted + 16)
		size *= 2;
	n->mask = size - 1;
	n->ids = malloc(size * sizeof *n->ids);
	if (!n->ids)
		return -ENOMEM;
	memset(n->ids, 0xff, size * sizeof *n->ids);
	for (uint32_t id = 1; id < all; id++) {
		if (!take[id])
			continue;
		const char *name = clair_catalog_name(c, id);
		size_t length = strlen(name), stem = stem_length(name, length);
		put(n, name, length, 2 * id);
		if (stem < length)
			put(n, name, stem, 2 * id + 1);
	}
	return 0;
}

void clair_names_finish(struct names *n)
{
	free(n->ids);
	*n = (struct names){ 0 };
}

/* How many of the folders before the name, from the last one on, are those of ID. */
static unsigned folders_alike(const struct clair_catalog *c, uint32_t id, const char *text,
			      size_t length)
{
	unsigned alike = 0;

	for (uint32_t at = clair_catalog_entry(c, id)->parent; at && length; alike++) {
		const char *name = clair_catalog_name(c, at);
		size_t n = strlen(name);

		while (length && text[length - 1] == '/')
			length--;
		if (n > length || memcmp(text + length - n, name, n) ||
		    (length > n && text[length - n - 1] != '/'))
			break;
		length -= n;
		at = clair_catalog_entry(c, at)->parent;
	}
	return alike;
}

uint32_t clair_names_find(const struct names *n, const char *text, size_t length)
{
	const struct clair_catalog *c = n->catalog;
	size_t begin = length;
	uint32_t best = CLAIR_NO_ID, looked = 0;
	unsigned most = 0;
	bool several = false, whole = false;

	while (begin && text[begin - 1] != '/')
		begin--;
	const char *name = text + begin;
	size_t size = length - begin;
	if (!size || size > 255)
		return CLAIR_NO_ID;
	for (uint32_t at = (uint32_t)XXH3_64bits(name, size) & n->mask;
	     n->ids[at] != FREE && looked < ALIKE; at = (at + 1) & n->mask, looked++) {
		uint32_t id = n->ids[at] / 2;
		bool stem = n->ids[at] & 1;
		const char *own = clair_catalog_name(c, id);
		size_t own_size = strlen(own);

		if (stem)
			own_size = stem_length(own, own_size);
		if (own_size != size || memcmp(own, name, size) || (stem && whole))
			continue;
		unsigned alike = folders_alike(c, id, text, begin);
		if (best == CLAIR_NO_ID || alike > most || (!stem && !whole)) {
			best = id;
			most = alike;
			several = false;
			whole = whole || !stem;
		} else if (alike == most) {
			several = true;
		}
	}
	return several ? CLAIR_NO_ID : best;
}
