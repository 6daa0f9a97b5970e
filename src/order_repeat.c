/* SPDX-License-Identifier: BSD-3-Clause */
/* SAM 2's RepeatFactorWrapper and OpenFold's shuffle by torch.multinomial. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "mt19937.h"
#include "numpy_random.h"
#include "order_batches.h"
#include "order_take.h"
#include "torch_perm.h"

/* ---- SAM 2 */

struct repeat {
	uint32_t n, world;
	uint64_t seed;
	bool distributed;
	double *factor;
};

static void repeat_close(void *p)
{
	struct repeat *s = p;

	if (!s)
		return;
	free(s->factor);
	free(s);
}

static int repeat_open(const struct clair_order_params *params, void **out, char **error)
{
	struct repeat *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_bool(params->words, "distributed", true, &s->distributed, error);
	if (r == 0)
		r = clair_batches_numbers(params, "factors", &s->factor, error);
	for (uint32_t i = 0; i < s->n && r == 0; i++)
		if (!(s->factor[i] >= 0 && s->factor[i] < 1e6))
			r = clair_bad(error, "factors: line %u is not between 0 and 10^6", i + 1);
	if (r < 0) {
		repeat_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* Factors are rounded at random, with 24 bits a sample; a DistributedSampler (seed 0)
 * shuffles the repeated list. */
static int repeat_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct repeat *s = p;
	struct clair_indices list = { 0 };
	struct clair_mt mt;
	int r = 0;

	clair_torch_seed(&mt, s->seed + epoch);
	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		double f = (double)(float)s->factor[i];
		uint32_t times = (uint32_t)f;
		double u = (clair_mt_u32(&mt) & 0xffffff) * 0x1p-24;

		times += u < f - times;
		for (; times && r == 0; times--)
			r = clair_indices_append(&list, i);
	}
	autofree uint32_t *perm = malloc((list.count + 1) * sizeof *perm);
	if (r == 0 && !perm)
		r = -ENOMEM;
	if (r == 0 && s->distributed) {
		clair_torch_seed(&mt, epoch);
		clair_torch_randperm(&mt, (uint32_t)list.count, perm);
		for (size_t i = 0; i < list.count; i++)
			perm[i] = list.at[perm[i]];
		r = clair_take(CLAIR_TAKE_PAD, perm, list.count, s->world, rank, out);
	} else if (r == 0) {
		r = clair_take(CLAIR_TAKE_STRIDE, list.at, list.count, s->world, rank, out);
	}
	clair_indices_finish(&list);
	return r;
}

static const struct clair_family_word repeat_words[] = {
	{ "seed", "0", "RepeatFactorWrapper's seed" },
	{ "factors", "", "a file with a repeat factor a sample, one a line" },
	{ "distributed", "1", "0: the repeated list itself, without DistributedSampler" },
	{ NULL },
};

const struct clair_family clair_family_sam2 = {
	.name = "sam2",
	.help = "SAM 2's RepeatFactorWrapper under DistributedSampler",
	.versions = "",
	.words = repeat_words,
	.open = repeat_open,
	.epoch = repeat_epoch,
	.close = repeat_close,
};

/* ---- OpenFold: n chains drawn without replacement with equal weights */

struct openfold {
	uint32_t n, world;
	uint64_t seed;
};

static int openfold_open(const struct clair_order_params *params, void **out, char **error)
{
	struct openfold *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 43, &s->seed, error);
	if (r < 0) {
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

static int openfold_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct openfold *s = p;
	autofree uint32_t *order = malloc(((size_t)s->n + 1) * sizeof *order);
	autofree double *u = malloc(((size_t)s->n + 1) * sizeof *u);
	struct clair_mt mt;

	if (!order || !u)
		return -ENOMEM;
	clair_torch_seed(&mt, s->seed);
	clair_mt_skip(&mt, 2 * epoch * s->n); /* one generator for the run */
	for (uint32_t i = 0; i < s->n; i++)
		u[i] = (double)(clair_mt_u64(&mt) & ((1ull << 53) - 1)) * 0x1p-53;
	clair_iota(order, s->n);
	int r = clair_batches_sort(order, s->n, u, false);
	return r < 0 ? r : clair_take(CLAIR_TAKE_STRIDE, order, s->n, s->world, rank, out);
}

static const struct clair_family_word openfold_words[] = {
	{ "seed", "43", "the generator's: --seed + 1" },
	{ NULL },
};

const struct clair_family clair_family_openfold = {
	.name = "openfold",
	.help = "OpenFold's shuffled chains (torch.multinomial of ones, no replacement)",
	.versions = "torch 2.7 and later",
	.words = openfold_words,
	.open = openfold_open,
	.epoch = openfold_epoch,
	.close = free,
};
