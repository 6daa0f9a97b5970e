/* SPDX-License-Identifier: BSD-3-Clause */
#include "manifest_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

/* Where there are many of a kind they are labels, not lists. */
#define MOST_IN_FOLDER 64
#define MOST 64
/* Bytes of one, and of all that are read. */
#define LARGEST (256u << 20)
#define ALL (1ull << 30)
#define SMALLEST 64

static const char *const tables[] = { "csv", "tsv", "txt", "lst", "list", "scp", "manifest",
				      NULL };
static const char *const jsons[] = { "json", "jsonl", "ndjson", NULL };

static bool has_ending(const char *name, const char *const *endings)
{
	const char *dot = strrchr(name, '.');

	for (size_t i = 0; dot && endings[i]; i++)
		if (!strcmp(dot + 1, endings[i]))
			return true;
	return false;
}

/* Candidates of one folder. */
static void find_in(const struct clair_catalog *c, uint32_t folder, uint32_t *ids, size_t *count)
{
	const struct clair_entry *e = clair_catalog_entry(c, folder);
	uint32_t found[MOST_IN_FOLDER];
	size_t n = 0;

	for (uint32_t i = 0; i < e->count; i++) {
		uint32_t id = e->first + i;
		const struct clair_entry *file = clair_catalog_entry(c, id);
		const char *name = clair_catalog_name(c, id);

		if (file->kind != CLAIR_FILE || file->size < SMALLEST || file->size > LARGEST ||
		    (!has_ending(name, tables) && !has_ending(name, jsons)))
			continue;
		if (n == MOST_IN_FOLDER)
			return;
		found[n++] = id;
	}
	for (size_t i = 0; i < n && *count < MOST; i++)
		ids[(*count)++] = found[i];
}

/* Whether LIST has most of the files that were opened. */
static bool covers(const struct clair_catalog *c, const struct clair_indices *list,
		   const uint32_t *opened, size_t count)
{
	autofree uint64_t *bits = calloc(clair_catalog_count(c) / 64 + 1, sizeof *bits);
	size_t in = 0;

	for (size_t i = 0; bits && i < list->count; i++)
		bits[list->at[i] / 64] |= 1ull << list->at[i] % 64;
	for (size_t i = 0; bits && i < count; i++)
		in += bits[opened[i] / 64] >> opened[i] % 64 & 1;
	/* Half: the others may be the masks of those. */
	return in && in >= count * 45 / 100;
}

static int add_list(struct clair_manifests *m, const struct clair_catalog *c, uint32_t manifest,
		    const char *column, const uint32_t *ids, size_t count)
{
	autofree uint64_t *bits = calloc(clair_catalog_count(c) / 64 + 1, sizeof *bits);
	autofree uint32_t *list = malloc((count + 1) * sizeof *list);
	uint32_t n = 0;

	if (!bits || !list)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		if (bits[ids[i] / 64] >> ids[i] % 64 & 1)
			continue;
		bits[ids[i] / 64] |= 1ull << ids[i] % 64;
		list[n++] = ids[i];
	}
	for (size_t i = 0; i < m->count; i++)
		if (m->lists[i].count == n && !memcmp(m->lists[i].ids, list, n * sizeof *list))
			return 0;
	if (m->count == m->room) {
		size_t room = m->room ? m->room * 2 : 8;
		struct clair_manifest_list *lists = realloc(m->lists, room * sizeof *lists);
		if (!lists)
			return -ENOMEM;
		m->lists = lists;
		m->room = room;
	}
	struct clair_manifest_list *l = &m->lists[m->count++];
	*l = (struct clair_manifest_list){ .manifest = manifest, .count = n };
	l->ids = take_ptr(list);
	snprintf(l->column, sizeof l->column, "%s", column);
	return 0;
}

struct pair {
	uint32_t key, id;
};

static int by_key(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Those of PAIRS whose key was annotated; SORTED ascending. */
static int add_annotated(struct clair_manifests *m, const struct clair_catalog *c,
			 uint32_t manifest, const struct pair *pairs, size_t n,
			 const struct clair_indices *sorted, const char *name)
{
	autofree uint32_t *ids = malloc((n + 1) * sizeof *ids);
	size_t kept = 0;

	if (!ids)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (bsearch(&pairs[i].key, sorted->at, sorted->count, sizeof *sorted->at,
			    by_number))
			ids[kept++] = pairs[i].id;
	return kept && kept < n ? add_list(m, c, manifest, name, ids, kept) : 0;
}

/* As COCO's tools have it: the pictures by their ids; both without those that have no
 * annotation. */
static int add_coco(struct clair_manifests *m, const struct clair_catalog *c,
		    uint32_t manifest, const struct column *column,
		    struct clair_indices *annotated)
{
	size_t n = column->ids.count;
	autofree struct pair *pairs = malloc((n + 1) * sizeof *pairs);
	autofree uint32_t *ids = malloc((n + 1) * sizeof *ids);

	if (!pairs || !ids)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (column->keys.at[i] == UINT32_MAX)
			return 0;
		pairs[i] = (struct pair){ column->keys.at[i], column->ids.at[i] };
	}
	if (annotated->count)
		qsort(annotated->at, annotated->count, sizeof *annotated->at, by_number);
	int r = add_annotated(m, c, manifest, pairs, n, annotated, "annotated");
	qsort(pairs, n, sizeof *pairs, by_key);
	for (size_t i = 0; i < n; i++)
		ids[i] = pairs[i].id;
	if (r == 0)
		r = add_list(m, c, manifest, "id", ids, n);
	return r == 0 ? add_annotated(m, c, manifest, pairs, n, annotated, "annotated id") : r;
}

static int read_one(const struct clair_catalog *c, const struct names *names, uint32_t id,
		    char *text, size_t size, const uint32_t *opened, size_t count,
		    struct clair_manifests *out)
{
	struct table t = { .names = names };
	bool json = has_ending(clair_catalog_name(c, id), jsons);

	int r = json ? clair_manifest_json(&t, text, size) : clair_manifest_table(&t, text, size);
	for (unsigned i = 0; i < t.count; i++) {
		struct column *x = &t.columns[i];

		if (r == 0 && x->ids.count >= count / 3 && x->ids.count > 2 &&
		    covers(c, &x->ids, opened, count)) {
			r = add_list(out, c, id, x->name, x->ids.at, x->ids.count);
			if (r == 0 && json)
				r = add_coco(out, c, id, x, &t.annotated);
		}
		clair_indices_finish(&x->ids);
		clair_indices_finish(&x->keys);
	}
	clair_indices_finish(&t.annotated);
	return r;
}

int clair_manifests_find(const struct clair_catalog *c, clair_manifest_read *read, void *arg,
			 const uint32_t *opened, size_t count, struct clair_manifests *out)
{
	uint32_t ids[MOST];
	size_t n = 0;
	uint64_t bytes = 0;
	struct names names = { 0 };
	int r = 0;

	*out = (struct clair_manifests){ 0 };
	for (uint32_t id = 0; id < clair_catalog_count(c) && n < MOST; id++)
		if (clair_catalog_entry(c, id)->kind == CLAIR_FOLDER)
			find_in(c, id, ids, &n);
	if (n)
		r = clair_names_init(&names, c, opened, count);
	for (size_t i = 0; i < n && r == 0; i++) {
		autofree char *text = NULL;
		size_t size;

		bytes += clair_catalog_entry(c, ids[i])->size;
		/* One that cannot be read is none. */
		if (bytes > ALL || read(arg, ids[i], &text, &size) < 0)
			continue;
		r = read_one(c, &names, ids[i], text, size, opened, count, out);
	}
	clair_names_finish(&names);
	if (r < 0)
		clair_manifests_finish(out);
	return r;
}

void clair_manifests_finish(struct clair_manifests *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->lists[i].ids);
	free(m->lists);
	*m = (struct clair_manifests){ 0 };
}
