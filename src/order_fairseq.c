/* SPDX-License-Identifier: BSD-3-Clause */
/* fairseq: samples by length, cut into batches, the list of batches shuffled each epoch. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_batches.h"
#include "order_take.h"

enum kind { LANGUAGE_PAIR, RAW_AUDIO, IN_ORDER };

struct state {
	struct clair_batches batches;
	uint32_t world;
	uint64_t seed;
	bool shuffle;
	/* how batches are made */
	unsigned kind;
	uint64_t max_tokens, max_sentences, multiple, max_size;
};

static void fairseq_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_batches_finish(&s->batches);
	free(s);
}

static void reverse(uint32_t *items, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		uint32_t t = items[i];

		items[i] = items[n - 1 - i];
		items[n - 1 - i] = t;
	}
}

/* The order of samples before they are cut; NumPy's seed is set just before. TOKENS become
 * what each sample counts for. */
static int sorted(const struct state *s, const struct clair_order_params *params,
		  uint32_t *order, double *tokens, char **error)
{
	uint32_t n = params->n;
	struct clair_mt mt;
	int r = 0;

	clair_mt_seed(&mt, (uint32_t)s->seed);
	clair_iota(order, n);
	if (s->kind == LANGUAGE_PAIR) {
		autofree double *target = NULL;

		clair_np_shuffle(&mt, order, n);
		if (!clair_words_get(params->words, "targets"))
			return clair_batches_sort(order, n, tokens, false);
		r = clair_batches_numbers(params, "targets", &target, error);
		if (r == 0)
			r = clair_batches_sort(order, n, target, false);
		if (r == 0)
			r = clair_batches_sort(order, n, tokens, false);
		for (uint32_t i = 0; i < n && r == 0; i++)
			tokens[i] = tokens[i] > target[i] ? tokens[i] : target[i];
		return r;
	}
	if (s->kind == RAW_AUDIO) { /* the longest first, what is as long at random */
		autofree uint32_t *perm = malloc(((size_t)n + 1) * sizeof *perm);
		autofree double *place = malloc(((size_t)n + 1) * sizeof *place);

		if (!perm || !place)
			return -ENOMEM;
		clair_np_permutation(&mt, n, perm);
		for (uint32_t i = 0; i < n; i++) {
			place[i] = perm[i];
			if (s->max_size && tokens[i] > (double)s->max_size)
				tokens[i] = (double)s->max_size;
		}
		r = clair_batches_sort(order, n, place, false);
		if (r == 0)
			r = clair_batches_sort(order, n, tokens, false);
		reverse(order, n);
	}
	return r;
}

/* One pass: a batch is closed when it is too long or too large; its size is then the last
 * one that was a multiple. ENDS has room for N + 1. */
static size_t find_ends(const struct state *s, const uint32_t *order, const double *tokens,
			uint32_t n, uint32_t *ends)
{
	double tail = 0, largest = 0, limit = (double)s->max_tokens;
	uint64_t sentences = s->max_sentences, multiple = s->multiple;
	size_t count = 0;
	uint32_t start = 0;

	ends[0] = 0;
	for (uint32_t at = 0; at < n; at++) {
		double t = tokens[order[at]];

		tail = t > tail ? t : tail;
		uint32_t end = at + 1, size = end - start;
		double most = largest > tail ? largest : tail;
		bool over = (sentences && size > sentences) || (limit > 0 && size * most > limit);

		if (over) {
			if (limit > 0 && tail * (end - ends[count]) > limit) {
				ends[++count] = at;
				tail = t;
			}
			start = ends[count];
			ends[++count] = start;
			most = tail;
		}
		if (over || size < multiple || size % multiple == 0) {
			ends[count] = end;
			largest = most;
			tail = 0;
		}
	}
	if (n && ends[count] != n)
		ends[++count] = n;
	return n ? count + 1 : 0;
}

static int make_batches(struct state *s, const struct clair_order_params *params, char **error)
{
	uint32_t n = params->n, from = 0;
	autofree uint32_t *order = malloc(((size_t)n + 1) * sizeof *order);
	autofree uint32_t *ends = calloc((size_t)n + 3, sizeof *ends);
	autofree double *tokens = NULL;
	int r = order && ends ? 0 : -ENOMEM;

	if (r == 0 && (s->kind != IN_ORDER || s->max_tokens))
		r = clair_batches_numbers(params, "lengths", &tokens, error);
	else if (r == 0 && !(tokens = calloc((size_t)n + 1, sizeof *tokens)))
		r = -ENOMEM;
	if (r == 0)
		r = sorted(s, params, order, tokens, error);
	if (r < 0)
		return r;
	size_t count = find_ends(s, order, tokens, n, ends);
	for (size_t i = 0; i < count && r == 0; i++) {
		if (ends[i] > from)
			r = clair_batches_add(&s->batches, order + from, ends[i] - from, false);
		from = ends[i] > from ? ends[i] : from;
	}
	return r;
}

static int fairseq_words(struct state *s, const struct clair_order_params *params, char **error)
{
	static const char *const kinds[] = { "language-pair", "raw-audio", "in-order", NULL };
	const struct clair_words *words = params->words;
	bool given = false;
	int r = clair_words_u64(words, "seed", 1, &s->seed, error);

	if (r == 0)
		r = clair_name_word(words, "kind", kinds, LANGUAGE_PAIR, &s->kind, error);
	if (r == 0)
		r = clair_words_u64(words, "max_tokens", 0, &s->max_tokens, error);
	if (r == 0)
		r = clair_words_u64(words, "max_sentences", 0, &s->max_sentences, error);
	if (r == 0)
		r = clair_words_uint(words, "multiple", 1, UINT32_MAX, &s->multiple, error);
	if (r == 0)
		r = clair_words_u64(words, "max_sample_size", 0, &s->max_size, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &s->shuffle, error);
	if (r == 0 && s->multiple == 0)
		r = clair_bad(error, "multiple=0: it is at least 1");
	if (r == 0)
		r = clair_batches_given(&s->batches, params, &given, error);
	return r < 0 || given ? r : make_batches(s, params, error);
}

static int fairseq_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = fairseq_words(s, params, error);
	if (r < 0) {
		fairseq_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int fairseq_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	size_t count = s->batches.ends.count;
	autofree uint32_t *order = malloc((count + 1) * sizeof *order);
	struct clair_mt mt;
	int r = order ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	clair_mt_seed(&mt, (uint32_t)(s->seed + epoch));
	clair_iota(order, count);
	if (s->shuffle)
		clair_np_shuffle(&mt, order, count);
	for (size_t i = rank; i < count && r == 0; i += s->world) {
		size_t n = 0;
		const uint32_t *items = clair_batches_at(&s->batches, order[i], &n);

		r = clair_take_copy(items, n, out);
	}
	return r;
}

static const struct clair_family_word words[] = {
	{ "seed", "1", "--seed" },
	{ "kind", "language-pair", "language-pair, raw-audio, in-order" },
	{ "lengths", "", "a file with a length a sample (source, audio), one a line" },
	{ "targets", "", "the same of the targets (language-pair)" },
	{ "max_tokens", "0", "--max-tokens, 0: None" },
	{ "max_sentences", "0", "--batch-size, 0: None" },
	{ "multiple", "1", "--required-batch-size-multiple" },
	{ "max_sample_size", "0", "--max-sample-size (raw-audio)" },
	{ "shuffle", "1", "0: batches in order" },
	{ "batches", "", "a file with the lengths of batches made elsewhere" },
	{ "order", "", "their samples, one a line" },
	{ NULL },
};

const struct clair_family clair_family_fairseq = {
	.name = "fairseq",
	.help = "fairseq's EpochBatchIterator (epoch 0 is its seed + 0)",
	.versions = "fairseq 0.12",
	.words = words,
	.open = fairseq_open,
	.epoch = fairseq_epoch,
	.close = fairseq_close,
};
