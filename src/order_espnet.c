/* SPDX-License-Identifier: BSD-3-Clause */
/* ESPnet2: a fixed list of batches by length, shuffled anew each epoch. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_batches.h"
#include "order_take.h"

enum type { UNSORTED, SORTED, FOLDED, LENGTH, NUMEL };

struct state {
	struct clair_batches batches;
	uint32_t world;
	uint64_t seed, per_epoch;
	bool shuffle, within;
	/* how batches are made */
	unsigned type;
	uint64_t batch, bins, fold, dim, least;
	bool in_descending, ascending;
};

static void espnet_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_batches_finish(&s->batches);
	free(s);
}

/* Keys cut into batches of SIZES; a last one that is too short is spread over the others,
 * from the one BACK from the end on. */
static int cut(struct state *s, const uint32_t *keys, struct clair_indices *sizes, size_t back)
{
	size_t n = sizes->count, at = 0;
	int r = 0;

	if (n > 1 && sizes->at[n - 1] < s->least) {
		uint32_t last = sizes->at[--n];

		for (size_t i = 0; i < last; i++) {
			size_t from_end = i % n + back;

			sizes->at[from_end <= n ? n - from_end : 0]++;
		}
	}
	for (size_t i = 0; i < n && r == 0; i++) {
		r = clair_batches_add(&s->batches, keys + at, sizes->at[i], s->in_descending);
		at += sizes->at[i];
	}
	return r == 0 && !s->ascending ? clair_batches_reverse(&s->batches) : r;
}

static int even_batches(struct state *s, const uint32_t *keys, uint32_t n)
{
	uint64_t m = n / s->batch ? n / s->batch : 1;
	int r = 0;

	for (uint64_t i = 0; i < m && r == 0; i++) {
		uint64_t low = i * n / m, high = (i + 1) * n / m;

		r = clair_batches_add(&s->batches, keys + low, (size_t)(high - low), false);
	}
	if (r == 0 && s->type == SORTED && s->in_descending == s->ascending)
		r = clair_batches_reverse(&s->batches);
	return r;
}

static int make_batches(struct state *s, const struct clair_order_params *params, char **error)
{
	uint32_t n = params->n;
	autofree uint32_t *keys = malloc(((size_t)n + 1) * sizeof *keys);
	autofree double *length = NULL;
	struct clair_indices sizes = { 0 };
	int r = keys ? 0 : -ENOMEM;

	if (r == 0)
		clair_iota(keys, n);
	if (r == 0 && s->type != UNSORTED)
		r = clair_batches_numbers(params, "lengths", &length, error);
	if (r == 0 && s->type != UNSORTED)
		r = clair_batches_sort(keys, n, length, s->type == SORTED && s->in_descending);
	if (r < 0 || s->type <= SORTED)
		return r < 0 ? r : even_batches(s, keys, n);
	for (uint64_t at = 0; at < n && r == 0 && s->type == FOLDED;) {
		uint64_t k = s->batch / (1 + (uint64_t)length[keys[at]] / s->fold);

		k = k < s->least ? s->least : k;
		k = k < n - at ? k : n - at;
		r = clair_indices_append(&sizes, (uint32_t)k);
		at += k;
	}
	double each = s->type == NUMEL ? (double)s->dim : 1;
	uint32_t from = 0;
	for (uint32_t k = 0; k < n && r == 0 && s->type != FOLDED; k++) {
		uint32_t c = k + 1 - from;

		if (k + 1 < n && !(c * length[keys[k]] * each > (double)s->bins && c >= s->least))
			continue;
		r = clair_indices_append(&sizes, c);
		from = k + 1;
	}
	if (r == 0)
		r = cut(s, keys, &sizes, s->type == FOLDED ? 2 : 1);
	clair_indices_finish(&sizes);
	return r;
}

static int espnet_words(struct state *s, const struct clair_order_params *params, char **error)
{
	static const char *const types[] = { "unsorted", "sorted", "folded",
					     "length",	 "numel",  NULL };
	static const char *const ways[] = { "ascending", "descending", NULL };
	const struct clair_words *words = params->words;
	unsigned in = 1, all = 0;
	bool given = false;
	int r = clair_name_word(words, "type", types, FOLDED, &s->type, error);

	if (r == 0)
		r = clair_name_word(words, "sort_in_batch", ways, 1, &in, error);
	if (r == 0)
		r = clair_name_word(words, "sort_batch", ways, 0, &all, error);
	s->in_descending = in == 1;
	s->ascending = all == 0;
	if (r == 0)
		r = clair_words_u64(words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 20, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_u64(words, "batch_bins", 1000000, &s->bins, error);
	if (r == 0)
		r = clair_words_uint(words, "fold_length", 80000, UINT32_MAX, &s->fold, error);
	if (r == 0)
		r = clair_words_uint(words, "dim", 1, UINT32_MAX, &s->dim, error);
	if (r == 0)
		r = clair_words_uint(words, "min_batch", 1, UINT32_MAX, &s->least, error);
	if (r == 0)
		r = clair_words_uint(words, "iters", 0, UINT32_MAX, &s->per_epoch, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &s->shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "within", false, &s->within, error);
	if (r == 0 && (s->batch == 0 || s->fold == 0))
		r = clair_bad(error, "batch, fold_length: at least 1");
	if (r == 0)
		r = clair_batches_given(&s->batches, params, &given, error);
	return r < 0 || given ? r : make_batches(s, params, error);
}

static int espnet_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = espnet_words(s, params, error);
	if (r < 0) {
		espnet_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* Numbers [from, to) of the list as shuffled for EPOCH. */
static int shuffled(const struct state *s, uint64_t epoch, uint64_t from, uint64_t to,
		    struct clair_indices *chosen)
{
	size_t n = s->batches.ends.count;
	autofree uint32_t *order = malloc((n + 1) * sizeof *order);
	struct clair_mt mt;

	if (!order)
		return -ENOMEM;
	clair_mt_seed(&mt, (uint32_t)(s->seed + epoch));
	clair_iota(order, n);
	if (s->shuffle)
		clair_np_shuffle(&mt, order, n);
	to = to < n ? to : n;
	return from < to ? clair_take_copy(order + from, (size_t)(to - from), chosen) : 0;
}

/* num_iters_per_epoch: an epoch is a piece of the endless list of shuffled lists. */
static int choose(const struct state *s, uint64_t epoch, struct clair_indices *chosen)
{
	uint64_t n = s->batches.ends.count, per = s->per_epoch;
	int r = 0;

	if (per == 0)
		return shuffled(s, epoch, 0, n, chosen);
	if (per < n) {
		uint64_t e = per * epoch / n, off = per * epoch % n;

		if (off >= per)
			return shuffled(s, e, off - per, off, chosen);
		r = shuffled(s, e - 1, n - (per - off), n, chosen);
		return r < 0 ? r : shuffled(s, e, 0, off, chosen);
	}
	uint64_t e = per * (epoch - 1) / n, at = per * (epoch - 1) % n;
	while (chosen->count < per && r == 0) {
		r = shuffled(s, e++, at, at + per - chosen->count, chosen);
		at = 0;
	}
	return r;
}

static int espnet_epoch(void *p, uint64_t number, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	struct clair_indices chosen = { 0 };
	uint64_t epoch = number + 1; /* ESPnet counts from 1 */
	size_t before = out->count;
	int r = s->batches.ends.count ? choose(s, epoch, &chosen) : 0;

	for (size_t i = 0; i < chosen.count && r == 0; i++) {
		size_t n = 0;
		const uint32_t *items = clair_batches_at(&s->batches, chosen.at[i], &n);

		r = clair_take(CLAIR_TAKE_STRIDE, items, n, s->world, rank, out);
	}
	if (r == 0 && s->within && s->shuffle) {
		struct clair_mt mt;

		clair_mt_seed(&mt, (uint32_t)(s->seed + epoch));
		clair_np_shuffle(&mt, out->at + before, out->count - before);
	}
	clair_indices_finish(&chosen);
	return r;
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "--seed" },
	{ "type", "folded", "batch_type: unsorted, sorted, folded, length, numel" },
	{ "lengths", "", "a file with a length a sample (the shape file's first column)" },
	{ "batch", "20", "batch_size" },
	{ "batch_bins", "1000000", "batch_bins (length, numel)" },
	{ "fold_length", "80000", "fold_length (folded)" },
	{ "dim", "1", "feature dimension (numel)" },
	{ "min_batch", "1", "min_batch_size" },
	{ "sort_in_batch", "descending", "ascending, descending" },
	{ "sort_batch", "ascending", "ascending, descending" },
	{ "iters", "0", "num_iters_per_epoch, 0: None" },
	{ "shuffle", "1", "0: batches as they are" },
	{ "within", "0", "shuffle_within_batch" },
	{ "batches", "", "a file with the lengths of batches made elsewhere" },
	{ "order", "", "their samples, one a line" },
	{ NULL },
};

const struct clair_family clair_family_espnet = {
	.name = "espnet",
	.help = "ESPnet2's batch samplers and SequenceIterFactory",
	.versions = "",
	.words = words,
	.open = espnet_open,
	.epoch = espnet_epoch,
	.close = espnet_close,
};
