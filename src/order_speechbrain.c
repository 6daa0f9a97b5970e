/* SPDX-License-Identifier: BSD-3-Clause */
/* SpeechBrain: ReproducibleRandomSampler, DynamicBatchSampler, and its distributed wrapper. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_batches.h"
#include "order_take.h"
#include "torch_perm.h"

/* ---- ReproducibleRandomSampler */

struct random {
	uint32_t n, world;
	uint64_t seed, count;
	bool replacement;
};

static int random_open(const struct clair_order_params *params, void **out, char **error)
{
	struct random *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 563375142, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "num_samples", s->n, UINT32_MAX, &s->count,
				     error);
	if (r == 0)
		r = clair_words_bool(params->words, "replacement", false, &s->replacement,
				     error);
	if (r < 0) {
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

static int random_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct random *s = p;
	autofree uint32_t *perm = malloc(((size_t)s->n + 1) * sizeof *perm);
	struct clair_mt mt;
	int r = perm ? 0 : -ENOMEM;

	if (r < 0 || s->n == 0)
		return r;
	if (s->world > 1) { /* a DistributedSampler takes its place */
		clair_torch_seed(&mt, epoch);
		clair_torch_randperm(&mt, s->n, perm);
		return clair_take(CLAIR_TAKE_PAD, perm, s->n, s->world, rank, out);
	}
	clair_torch_seed(&mt, s->seed + epoch);
	for (uint64_t left = s->count; left && r == 0 && !s->replacement;) {
		uint64_t k = left < s->n ? left : s->n;

		clair_torch_randperm(&mt, s->n, perm);
		r = clair_take_copy(perm, (size_t)k, out);
		left -= k;
	}
	for (uint64_t i = 0; i < s->count && r == 0 && s->replacement; i++)
		r = clair_indices_append(out, clair_mt_u32(&mt) % s->n);
	return r;
}

static const struct clair_family_word random_words[] = {
	{ "seed", "563375142", "SB_GLOBAL_SEED, when it is set" },
	{ "num_samples", "", "as the argument (all)" },
	{ "replacement", "0", "as the argument" },
	{ NULL },
};

const struct clair_family clair_family_speechbrain_random = {
	.name = "speechbrain-random",
	.help = "SpeechBrain's ReproducibleRandomSampler; DDP: DistributedSampler",
	.versions = "",
	.words = random_words,
	.open = random_open,
	.epoch = random_epoch,
	.close = free,
};

/* ---- DynamicBatchSampler */

enum ordering { RANDOM, ASCENDING, DESCENDING };

struct dynamic {
	uint32_t n, world;
	uint64_t seed, most;
	unsigned ordering;
	bool shuffle, drop_last, set_epoch, wrapper_shuffle;
	double *length, *bounds;
	size_t bounds_count;
	uint64_t *room; /* samples of a batch by bucket; one bucket more than bounds */
};

static void dynamic_close(void *p)
{
	struct dynamic *s = p;

	if (!s)
		return;
	free(s->length);
	free(s->bounds);
	free(s->room);
	free(s);
}

/* The normal distribution's quantile, by bisection. */
static double quantile(double p)
{
	double low = -10, high = 10;

	for (int i = 0; i < 200; i++) {
		double middle = (low + high) / 2;

		if (erfc(-middle / sqrt(2.0)) / 2 < p)
			low = middle;
		else
			high = middle;
	}
	return (low + high) / 2;
}

/* Log-normal quantiles, scaled so that the last one is the longest batch. */
static int make_bounds(struct dynamic *s, double longest, uint64_t buckets)
{
	s->bounds = malloc((size_t)(buckets + 1) * sizeof *s->bounds);
	if (!s->bounds)
		return -ENOMEM;
	s->bounds_count = (size_t)buckets;
	double last = exp(quantile((double)buckets / (double)(buckets + 1)));
	for (uint64_t k = 0; k < buckets; k++)
		s->bounds[k] = exp(quantile((double)(k + 1) / (double)(buckets + 1))) *
			       longest / last;
	return 0;
}

static int dynamic_bounds(struct dynamic *s, const struct clair_words *words, char **error)
{
	const char *file = clair_words_get(words, "boundaries");
	double longest = 0;
	uint64_t buckets = 0;
	int r = clair_words_double(words, "max_batch_length", 60, &longest, error);

	if (r == 0)
		r = clair_words_uint(words, "num_buckets", 20, 100000, &buckets, error);
	if (r == 0 && !file && buckets == 0)
		r = clair_bad(error, "num_buckets=0: it is at least 1");
	if (r == 0)
		r = file ? clair_batches_read(file, &s->bounds, &s->bounds_count, error) :
			   make_bounds(s, longest, buckets);
	if (r < 0)
		return r;
	s->room = malloc((s->bounds_count + 1) * sizeof *s->room);
	if (!s->room)
		return -ENOMEM;
	for (size_t k = 0; k < s->bounds_count; k++) {
		double room = longest / s->bounds[k];

		s->room[k] = room >= 1 && room < 4e9 ? (uint64_t)room : room < 1 ? 1 : UINT32_MAX;
		s->room[k] = s->room[k] < s->most ? s->room[k] : s->most;
	}
	s->room[s->bounds_count] = 1;
	return 0;
}

static int dynamic_words(struct dynamic *s, const struct clair_order_params *params,
			 char **error)
{
	static const char *const orderings[] = { "random", "ascending", "descending", NULL };
	const struct clair_words *words = params->words;
	int r = clair_words_u64(words, "seed", 42, &s->seed, error);

	if (r == 0)
		r = clair_words_uint(words, "max_batch_ex", UINT32_MAX, UINT32_MAX, &s->most,
				     error);
	if (r == 0)
		r = clair_name_word(words, "ordering", orderings, RANDOM, &s->ordering, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &s->shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "drop_last", false, &s->drop_last, error);
	if (r == 0)
		r = clair_words_bool(words, "set_epoch", true, &s->set_epoch, error);
	if (r == 0)
		r = clair_words_bool(words, "wrapper_shuffle", true, &s->wrapper_shuffle, error);
	if (r == 0)
		r = clair_batches_numbers(params, "lengths", &s->length, error);
	if (r == 0 && s->most == 0)
		r = clair_bad(error, "max_batch_ex=0: it is at least 1");
	return r < 0 ? r : dynamic_bounds(s, words, error);
}

static int dynamic_open(const struct clair_order_params *params, void **out, char **error)
{
	struct dynamic *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = dynamic_words(s, params, error);
	if (r < 0) {
		dynamic_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int fill_buckets(const struct dynamic *s, uint64_t epoch, struct clair_batches *to)
{
	size_t buckets = s->bounds_count + 1;
	autofree struct clair_indices *bucket = calloc(buckets, sizeof *bucket);
	autofree uint32_t *order = malloc(((size_t)s->n + 1) * sizeof *order);
	struct clair_mt mt;
	int r = 0;

	if (!bucket || !order)
		return -ENOMEM;
	clair_torch_seed(&mt, s->seed + epoch);
	clair_iota(order, s->n);
	if (s->shuffle)
		clair_torch_randperm(&mt, s->n, order);
	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		size_t k = 0;

		while (k < s->bounds_count && s->bounds[k] < s->length[order[i]])
			k++;
		r = clair_indices_append(&bucket[k], order[i]);
		if (r == 0 && bucket[k].count >= s->room[k]) {
			r = clair_batches_add(to, bucket[k].at, bucket[k].count, false);
			bucket[k].count = 0;
		}
	}
	for (size_t k = 0; k < buckets; k++) {
		if (r == 0 && bucket[k].count && !s->drop_last)
			r = clair_batches_add(to, bucket[k].at, bucket[k].count, false);
		clair_indices_finish(&bucket[k]);
	}
	return r;
}

/* ORDER (numbers of batches) is permuted, or sorted by the longest sample. */
static int permute(const struct dynamic *s, uint64_t epoch, const struct clair_batches *b,
		   uint32_t *order)
{
	size_t count = b->ends.count;
	autofree uint32_t *perm = malloc((count + 1) * 2 * sizeof *perm);
	autofree double *longest = calloc(count + 1, sizeof *longest);
	struct clair_mt mt;

	if (!perm || !longest)
		return -ENOMEM;
	for (size_t i = 0; i < count && s->ordering != RANDOM; i++) {
		size_t n = 0;
		const uint32_t *items = clair_batches_at(b, i, &n);

		for (size_t k = 0; k < n; k++)
			if (k == 0 || s->length[items[k]] > longest[i])
				longest[i] = s->length[items[k]];
	}
	if (s->ordering != RANDOM)
		return clair_batches_sort(order, count, longest, s->ordering == DESCENDING);
	clair_torch_seed(&mt, s->seed + epoch);
	clair_torch_randperm(&mt, (uint32_t)count, perm);
	for (size_t i = 0; i < count; i++)
		perm[count + i] = order[perm[i]];
	for (size_t i = 0; i < count; i++)
		order[i] = perm[count + i];
	return 0;
}

static int dynamic_order(const struct dynamic *s, uint64_t number, const struct clair_batches *b,
			 uint32_t *order)
{
	uint64_t epoch = s->set_epoch ? number : 0;
	/* iterated again without set_epoch: permuted once more, from the first one's order
	 * when samples are shuffled, else from the last one's */
	uint64_t more = s->set_epoch || s->ordering != RANDOM ? 0 : number;
	int r = 0;

	clair_iota(order, b->ends.count);
	r = permute(s, epoch, b, order);
	if (s->shuffle && more > 1)
		more = 1;
	for (; more && r == 0; more--)
		r = permute(s, epoch, b, order);
	return r;
}

static int dynamic_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct dynamic *s = p;
	struct clair_batches b = { 0 };
	struct clair_indices mine = { 0 };
	int r = fill_buckets(s, s->set_epoch ? epoch : 0, &b);
	size_t count = b.ends.count;
	autofree uint32_t *order = malloc((count + 1) * 2 * sizeof *order);

	if (r == 0 && !order)
		r = -ENOMEM;
	if (r == 0)
		r = dynamic_order(s, epoch, &b, order);
	if (r == 0 && s->world > 1) { /* a DistributedSampler over the batches */
		uint32_t *perm = order + count;
		struct clair_mt mt;

		clair_torch_seed(&mt, epoch);
		clair_iota(perm, count);
		if (s->wrapper_shuffle)
			clair_torch_randperm(&mt, (uint32_t)count, perm);
		for (size_t i = 0; i < count; i++)
			perm[i] = order[perm[i]];
		r = clair_take(CLAIR_TAKE_PAD, perm, count, s->world, rank, &mine);
	} else if (r == 0) {
		r = clair_take_copy(order, count, &mine);
	}
	for (size_t i = 0; i < mine.count && r == 0; i++) {
		size_t n = 0;
		const uint32_t *items = clair_batches_at(&b, mine.at[i], &n);

		r = clair_take_copy(items, n, out);
	}
	clair_indices_finish(&mine);
	clair_batches_finish(&b);
	return r;
}

static const struct clair_family_word dynamic_family_words[] = {
	{ "seed", "42", "seed" },
	{ "lengths", "", "a file with a length a sample, one a line" },
	{ "max_batch_length", "60", "as the argument" },
	{ "num_buckets", "20", "as the argument" },
	{ "boundaries", "", "a file with bucket_boundaries, instead of num_buckets" },
	{ "max_batch_ex", "", "as the argument" },
	{ "ordering", "random", "batch_ordering: random, ascending, descending" },
	{ "shuffle", "1", "as the argument" },
	{ "set_epoch", "1", "0: set_epoch is never called" },
	{ "wrapper_shuffle", "1", "DDP: 0 for sorting=ascending" },
	{ NULL },
};

const struct clair_family clair_family_speechbrain_dynamic = {
	.name = "speechbrain-dynamic",
	.help = "SpeechBrain's DynamicBatchSampler",
	.versions = "",
	.words = dynamic_family_words,
	.open = dynamic_open,
	.epoch = dynamic_epoch,
	.close = dynamic_close,
};
