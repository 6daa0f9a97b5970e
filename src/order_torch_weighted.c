/* SPDX-License-Identifier: BSD-3-Clause */
/* torch.utils.data.WeightedRandomSampler: torch.multinomial over doubles. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "order_take.h"
#include "torch_draw.h"

struct state {
	uint32_t n, world;
	enum clair_take take;
	uint64_t samples, skip, base;
	bool replacement;
	double *weights, *sums; /* owned; sums: cumulative, the last one is 1 */
	struct clair_torch_walk walk;
};

struct key {
	double q;
	uint32_t index;
};

static void torch_weighted_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->weights);
	free(s->sums);
	free(s);
}

static int read_weights(struct state *s, const char *file, char **error)
{
	autofclose FILE *f = file ? fopen(file, "re") : NULL;
	double sum = 0;

	if (!f)
		return clair_bad(error, "weights=%s: %s", file ? file : "",
		                 file ? strerror(errno)
		                      : "a file with a weight a line is needed");
	s->weights = calloc(s->n + 1ul, sizeof *s->weights);
	s->sums = calloc(s->n + 1ul, sizeof *s->sums);
	if (!s->weights || !s->sums)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++) {
		if (fscanf(f, "%lf", &s->weights[i]) != 1 || !(s->weights[i] >= 0) ||
		    isinf(s->weights[i]))
			return clair_bad(
			    error, "weights=%s: line %u is no weight; %u are needed",
			    file, i + 1, s->n);
		sum += s->weights[i];
		s->sums[i] = sum;
	}
	if (s->n && !(sum > 0))
		return clair_bad(error, "weights=%s: they are all zero", file);
	for (uint32_t i = 0; i < s->n; i++)
		s->sums[i] /= sum;
	if (s->n)
		s->sums[s->n - 1] = 1;
	return 0;
}

static int read_words(struct state *s, const struct clair_words *words, char **error)
{
	uint64_t seed = 0;

	int r = clair_words_u64(words, "seed", 0, &seed, error);
	if (r == 0)
		r = clair_torch_skip_word(words, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(words, "base", 2, 1u << 20, &s->base, error);
	if (r == 0)
		r = clair_words_bool(words, "replacement", true, &s->replacement,
		                     error);
	if (r == 0)
		r = clair_words_uint(words, "num_samples", s->n, UINT32_MAX,
		                     &s->samples, error);
	if (r == 0 && !s->replacement && s->samples > s->n)
		r = clair_bad(error,
		              "num_samples=%lu: without replacement there are %u",
		              (unsigned long)s->samples, s->n);
	if (r == 0)
		r = clair_take_word(words, CLAIR_TAKE_ALL, &s->take, error);
	if (r == 0)
		r = read_weights(s, clair_words_get(words, "weights"), error);
	clair_torch_walk_init(&s->walk, seed);
	return r;
}

static int torch_weighted_open(const struct clair_order_params *params, void **out,
                               char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = read_words(s, params->words, error);
	if (r < 0)
		torch_weighted_close(s);
	else
		*out = s;
	return r;
}

/* uniform_real_distribution(0, 1) in double: the low 53 bits of 64. */
static double uniform(struct clair_torch_walk *w)
{
	w->at += 2;
	return ldexp((double)(clair_mt_u64(&w->mt) & ((1ull << 53) - 1)), -53);
}

static uint32_t lower_bound(const double *sums, uint32_t n, double u)
{
	uint32_t low = 0, high = n;

	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (sums[mid] < u)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static int by_key(const void *a, const void *b)
{
	const struct key *x = a, *y = b;

	if (x->q != y->q)
		return x->q > y->q ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static int without_replacement(struct state *s, uint32_t *at)
{
	autofree struct key *keys = malloc(sizeof *keys * (s->n + 1ul));

	if (!keys)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++)
		keys[i] = (struct key){s->weights[i] / -log1p(-uniform(&s->walk)), i};
	qsort(keys, s->n, sizeof *keys, by_key);
	for (uint64_t i = 0; i < s->samples; i++)
		at[i] = keys[i].index;
	return 0;
}

/* What all ranks draw alike, into AT. */
static int draw_all(struct state *s, uint64_t epoch, uint32_t *at)
{
	uint64_t draws = 2 * (s->replacement ? s->samples : s->n);

	clair_torch_walk_to(&s->walk, s->skip + s->base + epoch * (s->base + draws));
	if (!s->replacement)
		return without_replacement(s, at);
	for (uint64_t i = 0; i < s->samples; i++)
		at[i] = lower_bound(s->sums, s->n, uniform(&s->walk));
	return 0;
}

static int torch_weighted_epoch(void *p, uint64_t epoch, uint32_t rank,
                                struct clair_indices *out)
{
	struct state *s = p;

	if (!s->n)
		return 0;
	autofree uint32_t *all = malloc(sizeof *all * (s->samples + 1));
	if (!all)
		return -ENOMEM;
	int r = draw_all(s, epoch, all);
	return r == 0 ? clair_take(s->take, all, s->samples, s->world, rank, out) : r;
}

static const struct clair_family_word words[] = {
    {"seed", "0", "of torch.manual_seed, or of an explicit generator"},
    {"weights", "", "file with a weight a line (doubles)"},
    {"num_samples", "", "samples an epoch; n by default"},
    {"replacement", "1", "0: without (a torch built without MKL's generator)"},
    CLAIR_TORCH_SKIP_WORDS,
    {"base", "2", "u32 that the loader draws before an epoch's samples"},
    {"take", "all", "a rank's part: all, stride (MLPerf's OpenFold), pad, drop, block"},
    {NULL},
};

const struct clair_family clair_family_torch_weighted = {
    .name = "torch-weighted",
    .help = "torch.utils.data.WeightedRandomSampler",
    .versions = "",
    .words = words,
    .open = torch_weighted_open,
    .epoch = torch_weighted_epoch,
    .close = torch_weighted_close,
};
