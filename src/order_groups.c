/* SPDX-License-Identifier: BSD-3-Clause */
#include "order_groups.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "order_take.h"

int clair_groups_read(const char *file, uint64_t max, uint64_t **list, size_t *count,
		      char **error)
{
	autofclose FILE *f = fopen(file, "re");
	autofree uint64_t *at = NULL;
	size_t used = 0, room = 0;
	char line[64];

	if (!f)
		return clair_bad(error, "%s: %m", file);
	while (fgets(line, sizeof line, f)) {
		char *end = NULL;

		if (*line == '\n' || *line == '#')
			continue;
		errno = 0;
		uint64_t v = strtoull(line, &end, 10);
		if (!isdigit((unsigned char)*line) || errno || (*end && *end != '\n') || v > max)
			return clair_bad(error, "%s: line %zu is no number up to %" PRIu64,
					 file, used + 1, max);
		if (used == room) {
			room = room ? 2 * room : 256;
			uint64_t *more = realloc(at, room * sizeof *at);
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

static int fill(struct clair_groups *g, const uint64_t *sizes, size_t count)
{
	uint64_t total = 0;

	g->size = malloc((count + 1) * sizeof *g->size);
	g->start = malloc((count + 1) * sizeof *g->start);
	if (!g->size || !g->start)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		g->size[i] = (uint32_t)sizes[i];
		g->start[i] = (uint32_t)total;
		total += sizes[i];
		if (total > UINT32_MAX)
			return -EOVERFLOW;
	}
	g->start[count] = (uint32_t)total;
	g->total = (uint32_t)total;
	g->count = (uint32_t)count;
	return 0;
}

/* Groups of the same size; 1 gives each sample its own. */
static int fill_equal(struct clair_groups *g, uint32_t n, uint32_t each)
{
	size_t count = n / each + (n % each != 0);
	autofree uint64_t *sizes = malloc((count + 1) * sizeof *sizes);

	if (!sizes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		sizes[i] = i + 1 < count || n % each == 0 ? each : n % each;
	return fill(g, sizes, count);
}

static int fill_word(struct clair_groups *g, const struct clair_order_params *params,
		     const char *key, const char *value, char **error)
{
	autofree uint64_t *sizes = NULL;
	uint64_t each = 0;
	size_t count = 0;
	int r = 0;

	if (value && value[strspn(value, "0123456789")] == '\0') {
		r = clair_words_uint(params->words, key, 1, UINT32_MAX, &each, error);
		if (r == 0 && each == 0)
			r = clair_bad(error, "%s=0: it is at least 1", key);
		return r < 0 ? r : fill_equal(g, params->n, (uint32_t)each);
	}
	if (!value)
		return params->sizes ? fill(g, params->sizes, params->n) :
				       fill_equal(g, params->n, 1);
	r = clair_groups_read(value, UINT32_MAX, &sizes, &count, error);
	return r < 0 ? r : fill(g, sizes, count);
}

int clair_groups_init(struct clair_groups *g, const struct clair_order_params *params,
		      const char *key, char **error)
{
	const char *value = clair_words_get(params->words, key);

	*g = (struct clair_groups){ 0 };
	int r = fill_word(g, params, key, value, error);
	if (r == -EOVERFLOW)
		r = clair_bad(error, "%s: more than 2^32 samples", key);
	if (r == 0 && g->total != params->n && g->count != params->n)
		r = clair_bad(error,
			      "%s=%s: %u groups of %u samples in all do not fit the dataset, "
			      "which has %u files",
			      key, value ? value : "(sizes)", g->count, g->total, params->n);
	g->files = g->total != params->n;
	if (r < 0)
		clair_groups_finish(g);
	return r;
}

void clair_groups_finish(struct clair_groups *g)
{
	free(g->size);
	free(g->start);
	*g = (struct clair_groups){ 0 };
}

/* The group of SAMPLE: the last one that starts at or before it and is not empty. */
static uint32_t group_of(const struct clair_groups *g, uint32_t sample)
{
	uint32_t low = 0, high = g->count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (g->start[middle] <= sample)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int clair_groups_emit(const struct clair_groups *g, const uint32_t *samples, size_t n,
		      struct clair_indices *out)
{
	if (!g->files)
		return clair_take_copy(samples, n, out);
	autofree uint8_t *seen = calloc((size_t)g->count + 1, 1);
	int r = seen ? 0 : -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++) {
		uint32_t k = group_of(g, samples[i]);

		if (!seen[k])
			r = clair_indices_append(out, k);
		seen[k] = 1;
	}
	return r;
}

int clair_groups_interleave(struct clair_part *parts, size_t workers, size_t batch,
			    struct clair_indices *out)
{
	int r = 0;

	for (bool more = true; more && r == 0;) {
		more = false;
		for (size_t w = 0; w < workers && r == 0; w++) {
			size_t k = parts[w].count < batch ? parts[w].count : batch;

			r = k ? clair_take_copy(parts[w].items, k, out) : 0;
			parts[w].items += k;
			parts[w].count -= k;
			more = more || parts[w].count;
		}
	}
	return r;
}
