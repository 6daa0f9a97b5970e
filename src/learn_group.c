/* SPDX-License-Identifier: BSD-3-Clause */
/* Several files a sample: which ones belong together, from their names. */
#include "learn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

/* Groups that must be seen before they are believed in. */
#define FEWEST 12

/* Where the key of a name ends: the rest of it is the suffix. */
static size_t key_length(const char *name, enum learn_key key)
{
	size_t n = strcspn(name, ".");

	if (key == CLAIR_KEY_FOLDER)
		return 0;
	for (size_t i = n; key == CLAIR_KEY_PREFIX && i-- > 0;)
		if (name[i] == '_')
			return i;
	return n;
}

static bool is_same(const struct clair_catalog *c, uint32_t a, uint32_t b, enum learn_key key)
{
	const char *x = clair_catalog_name(c, a), *y = clair_catalog_name(c, b);
	size_t n = key_length(x, key);

	if (key == CLAIR_KEY_FOLDER)
		return clair_catalog_entry(c, a)->parent == clair_catalog_entry(c, b)->parent;
	return n == key_length(y, key) && !memcmp(x, y, n);
}

/* Whether one reader's opens are in groups of GROUP: alike within, other than the last one. The
 * last group need not be whole when the pass is not over. */
static bool reader_in_groups(const struct clair_catalog *c, const uint32_t *ids, size_t count,
			     unsigned group, enum learn_key key, bool over, size_t *groups)
{
	if (over && count % group)
		return false;
	for (size_t i = 0; i < count; i += group) {
		if (i && is_same(c, ids[i], ids[i - group], key))
			return false;
		for (unsigned g = 1; g < group && i + g < count; g++)
			if (ids[i] == ids[i + g] || !is_same(c, ids[i], ids[i + g], key))
				return false;
		*groups += i + group <= count;
	}
	return true;
}

uint32_t *clair_learn_by_reader(const struct clair_pass *p, size_t *begins)
{
	uint32_t *ids = malloc((p->count + 1) * sizeof *ids);
	size_t at[CLAIR_PASS_READERS], n = 0;

	if (!ids)
		return NULL;
	for (unsigned r = 0; r < p->reader_count; r++) {
		at[r] = begins[r] = n;
		n += p->readers[r].count;
	}
	begins[p->reader_count] = n;
	if (n != p->count) {
		free(ids);
		return NULL;
	}
	for (size_t i = 0; i < p->count; i++)
		ids[at[p->by[i]]++] = p->ids[i];
	return ids;
}

static unsigned find_group(const struct clair_catalog *c, const struct clair_pass *p,
			   const uint32_t *ids, const size_t *begins, bool over,
			   enum learn_key *which)
{
	for (unsigned group = CLAIR_LEARN_GROUP; group > 1; group--) {
		for (enum learn_key key = 0; key < CLAIR_KEYS; key++) {
			size_t groups = 0;
			bool all = true;

			for (unsigned r = 0; r < p->reader_count && all; r++)
				all = reader_in_groups(c, ids + begins[r],
						       begins[r + 1] - begins[r], group, key,
						       over, &groups);
			if (all && groups >= FEWEST) {
				*which = key;
				return group;
			}
		}
	}
	return 1;
}

unsigned clair_learn_group(const struct clair_catalog *c, const struct clair_pass *p)
{
	size_t begins[CLAIR_PASS_READERS + 1];
	autofree uint32_t *ids = clair_learn_by_reader(p, begins);
	enum learn_key key;

	return ids ? find_group(c, p, ids, begins, true, &key) : 1;
}

/* --- partners -------------------------------------------------------------------------------- */

/* The folder of the Gth files of all groups, and how their names end: false when they do not
 * end alike. */
static bool describe(const struct clair_catalog *c, const struct clair_pass *p,
		     const uint32_t *ids, const size_t *begins, struct learn_grouping *out,
		     unsigned g)
{
	autofree uint32_t *members = malloc((p->count + 1) * sizeof *members);
	size_t n = 0;

	if (!members)
		return false;
	for (unsigned r = 0; r < p->reader_count; r++)
		for (size_t i = begins[r] + g; i < begins[r + 1]; i += out->group)
			members[n++] = ids[i];
	for (size_t i = 0; i < n; i++) {
		const char *name = clair_catalog_name(c, members[i]);
		const char *suffix = name + key_length(name, out->key);

		if (strlen(suffix) >= sizeof out->suffix[g])
			return false;
		if (i == 0)
			strcpy(out->suffix[g], suffix);
		else if (strcmp(out->suffix[g], suffix))
			return false;
	}
	if (n)
		out->folder[g] = clair_learn_folder(c, members, n);
	return n > 0;
}

void clair_learn_find_grouping(const struct clair_catalog *c, const struct clair_pass *p,
			       struct learn_grouping *out)
{
	size_t begins[CLAIR_PASS_READERS + 1];
	autofree uint32_t *ids = clair_learn_by_reader(p, begins);

	*out = (struct learn_grouping){ .group = 1 };
	if (!ids)
		return;
	out->group = find_group(c, p, ids, begins, false, &out->key);
	for (unsigned g = 0; g < out->group && out->group > 1; g++)
		if (!describe(c, p, ids, begins, out, g))
			out->group = 1;
}

bool clair_learn_is_first(const struct clair_catalog *c, const struct learn_grouping *g,
			  uint32_t id)
{
	const char *name = clair_catalog_name(c, id);

	return !strcmp(name + key_length(name, g->key), g->suffix[0]) &&
	       clair_learn_is_below(c, id, g->folder[0]);
}

uint32_t clair_learn_partner(const struct clair_catalog *c, const struct learn_grouping *g,
			     uint32_t id, unsigned k)
{
	char path[8192], partner[8400];
	const char *name = clair_catalog_name(c, id);
	size_t skip = g->folder[0] ? clair_catalog_path(c, g->folder[0], NULL, 0) + 1 : 0;
	size_t n = clair_catalog_path(c, id, path, sizeof path);
	size_t suffix = strlen(name) - key_length(name, g->key);

	if (k == 0)
		return id;
	if (n >= sizeof path || n < skip + suffix)
		return CLAIR_NO_ID;
	size_t folder = clair_catalog_path(c, g->folder[k], partner, sizeof path);
	if (folder >= sizeof path || folder + 1 + n - skip - suffix + strlen(g->suffix[k]) + 1 >
					     sizeof partner)
		return CLAIR_NO_ID;
	if (folder)
		partner[folder++] = '/';
	memcpy(partner + folder, path + skip, n - skip - suffix);
	strcpy(partner + folder + n - skip - suffix, g->suffix[k]);
	uint32_t to = clair_catalog_find(c, partner);
	return to != CLAIR_NO_ID && clair_catalog_entry(c, to)->kind == CLAIR_FILE ? to :
										     CLAIR_NO_ID;
}
