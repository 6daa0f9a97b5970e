/* SPDX-License-Identifier: BSD-3-Clause */
/* Samplers that draw their order straight from one generator: RandomSampler with an
 * explicit one (before torch 1.9 also with the default one), SubsetRandomSampler. An
 * epoch takes the loader's base seed (2 u32), the permutation, and one more when it is
 * read to the end. */
#include <errno.h>
#include <stdlib.h>

#include "torch_draw.h"

/* A torch that draws one permutation an epoch: what SubsetRandomSampler always does. */
#define ONE_PERMUTATION 1009000u

struct state {
	struct clair_torch_random sampler;
	uint64_t skip, base;
	bool persistent; /* persistent workers draw the base seed once */
	struct clair_torch_walk walk;
};

static int read_words(struct state *s, const struct clair_order_params *params,
                      char **error)
{
	const struct clair_words *words = params->words;
	uint64_t seed = 0;

	int r = clair_words_u64(words, "seed", 0, &seed, error);
	if (r == 0)
		r = clair_torch_skip_word(words, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(words, "base", 2, 1u << 20, &s->base, error);
	if (r == 0)
		r = clair_words_bool(words, "persistent", false, &s->persistent, error);
	if (r == 0)
		clair_torch_walk_init(&s->walk, seed);
	return r;
}

static int torch_random_open(const struct clair_order_params *params, void **out,
                             char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	int r = read_words(s, params, error);
	if (r == 0)
		r = clair_torch_random_words(&s->sampler, params, error);
	if (r < 0)
		free(s);
	else
		*out = s;
	return r;
}

static int torch_subset_open(const struct clair_order_params *params, void **out,
                             char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	int r = read_words(s, params, error);
	s->sampler =
	    (struct clair_torch_random){params->n, params->n, false, ONE_PERMUTATION};
	if (r < 0)
		free(s);
	else
		*out = s;
	return r;
}

/* Every rank reads everything. */
static int torch_random_epoch(void *p, uint64_t epoch, uint32_t rank,
                              struct clair_indices *out)
{
	struct state *s = p;
	uint64_t bases = s->persistent ? 1 : epoch + 1;

	(void)rank;
	clair_torch_walk_to(&s->walk,
	                    s->skip + s->base * bases +
	                        epoch * clair_torch_random_draws(&s->sampler));
	return clair_torch_random_epoch(&s->sampler, &s->walk, out);
}

static const struct clair_family_word words[] = {
    {"seed", "0", "seed of the explicit generator"},
    CLAIR_TORCH_SKIP_WORDS,
    {"base", "2", "u32 that the loader draws before an epoch's permutation"},
    {"persistent", "0", "1: persistent workers (base seed drawn once)"},
    CLAIR_TORCH_RANDOM_WORDS,
    {NULL},
};

static const struct clair_family_word subset_words[] = {
    {"seed", "0", "of torch.manual_seed, or of an explicit generator"},
    CLAIR_TORCH_SKIP_WORDS,
    {"base", "2", "u32 that the loader draws before an epoch's permutation"},
    {"persistent", "0", "1: persistent workers (base seed drawn once)"},
    {NULL},
};

const struct clair_family clair_family_torch_random = {
    .name = "torch-random",
    .help = "torch.utils.data.RandomSampler, generator=G(seed)",
    .versions = "",
    .words = words,
    .open = torch_random_open,
    .epoch = torch_random_epoch,
    .close = free,
};

const struct clair_family clair_family_torch_subset = {
    .name = "torch-subset",
    .help = "torch.utils.data.SubsetRandomSampler; n is the subset's length",
    .versions = "",
    .words = subset_words,
    .open = torch_subset_open,
    .epoch = torch_random_epoch,
    .close = free,
};
