/* SPDX-License-Identifier: BSD-3-Clause */
#include "order_batches.h"

#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "order_groups.h"
#include "order_take.h"

void clair_batches_finish(struct clair_batches *b)
{
	clair_indices_finish(&b->items);
	clair_indices_finish(&b->ends);
}

int clair_batches_add(struct clair_batches *b, const uint32_t *items, size_t n, bool backwards)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = clair_indices_append(&b->items, items[backwards ? n - 1 - i : i]);
	return r < 0 ? r : clair_indices_append(&b->ends, (uint32_t)b->items.count);
}

const uint32_t *clair_batches_at(const struct clair_batches *b, size_t i, size_t *n)
{
	uint32_t start = i ? b->ends.at[i - 1] : 0;

	*n = b->ends.at[i] - start;
	return b->items.at ? b->items.at + start : NULL;
}

int clair_batches_reverse(struct clair_batches *b)
{
	struct clair_batches turned = { 0 };
	int r = 0;

	for (size_t i = b->ends.count; i-- > 0 && r == 0;) {
		size_t n = 0;
		const uint32_t *items = clair_batches_at(b, i, &n);

		r = clair_batches_add(&turned, items, n, false);
	}
	if (r < 0) {
		clair_batches_finish(&turned);
		return r;
	}
	clair_batches_finish(b);
	*b = turned;
	return 0;
}

int clair_batches_given(struct clair_batches *b, const struct clair_order_params *params,
			bool *given, char **error)
{
	const char *file = clair_words_get(params->words, "batches");
	const char *items = clair_words_get(params->words, "order");
	autofree uint64_t *sizes = NULL, *order = NULL;
	size_t count = 0, listed = 0;
	uint64_t at = 0;
	int r = 0;

	*given = file != NULL;
	if (!file)
		return 0;
	r = clair_groups_read(file, UINT32_MAX, &sizes, &count, error);
	if (r == 0 && items)
		r = clair_groups_read(items, params->n ? params->n - 1 : 0, &order, &listed,
				      error);
	for (size_t i = 0; i < count && r == 0; i++) {
		for (uint64_t k = 0; k < sizes[i] && r == 0; k++, at++) {
			if (at >= (items ? listed : params->n))
				return clair_bad(error, "batches=%s: more samples than there are",
						 file);
			r = clair_indices_append(&b->items,
						 (uint32_t)(items ? order[at] : at));
		}
		if (r == 0)
			r = clair_indices_append(&b->ends, (uint32_t)b->items.count);
	}
	return r;
}

int clair_batches_read(const char *file, double **list, size_t *count, char **error)
{
	autofclose FILE *f = fopen(file, "re");
	autofree double *at = NULL;
	size_t used = 0, room = 0;
	char line[100];

	if (!f)
		return clair_bad(error, "%s: %m", file);
	while (fgets(line, sizeof line, f)) {
		char *end = NULL;
		double v = strtod(line, &end);

		if (end == line || (*end && *end != '\n'))
			return clair_bad(error, "%s: line %zu is no number", file, used + 1);
		if (used == room) {
			room = room ? 2 * room : 256;
			double *more = realloc(at, room * sizeof *at);
			if (!more)
				return -ENOMEM;
			at = more;
		}
		at[used++] = v;
	}
	*list = take_ptr(at);
	*count = used;
	return 0;
}

int clair_batches_numbers(const struct clair_order_params *params, const char *key,
			  double **values, char **error)
{
	const char *file = clair_words_get(params->words, key);
	size_t count = 0;

	if (file) {
		int r = clair_batches_read(file, values, &count, error);

		if (r == 0 && count != params->n)
			r = clair_bad(error, "%s=%s: %zu lines for %u samples", key, file, count,
				      params->n);
		return r;
	}
	if (!params->sizes)
		return clair_bad(error, "%s: a file with a number a sample is needed", key);
	*values = malloc(((size_t)params->n + 1) * sizeof **values);
	if (!*values)
		return -ENOMEM;
	for (uint32_t i = 0; i < params->n; i++)
		(*values)[i] = (double)params->sizes[i];
	return 0;
}

struct keyed {
	double key;
	uint32_t item;
	size_t at;
};

static int compare(const void *a, const void *b)
{
	const struct keyed *x = a, *y = b;

	if (x->key < y->key || x->key > y->key)
		return x->key < y->key ? -1 : 1;
	return x->at < y->at ? -1 : x->at > y->at;
}

int clair_batches_sort(uint32_t *items, size_t n, const double *key, bool down)
{
	autofree struct keyed *all = malloc((n + 1) * sizeof *all);

	if (!all)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		all[i] = (struct keyed){ down ? -key[items[i]] : key[items[i]], items[i], i };
	qsort(all, n, sizeof *all, compare);
	for (size_t i = 0; i < n; i++)
		items[i] = all[i].item;
	return 0;
}
