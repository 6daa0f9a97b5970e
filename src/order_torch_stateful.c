/* SPDX-License-Identifier: BSD-3-Clause */
/* torchdata's StatefulDataLoader(shuffle=True). Its sampler's generator lives as long
 * as the loader; an iterator draws its permutation when it is made, and with workers
 * once more. Up to 0.10.1 that generator is seeded with 1 in every program; later with
 * two u32 of the default one. */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"
#include "torch_draw.h"

#define V0_11 11000u

struct state {
	uint32_t n, version;
	bool explicit_generator, persistent, workers;
	struct clair_torch_walk walk; /* of the sampler's generator */
};

static int torch_stateful_open(const struct clair_order_params *params, void **out,
                               char **error)
{
	uint64_t seed = 0, skip = 0, workers = 0;
	struct state *s = calloc(1, sizeof *s);
	struct clair_mt mt;

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	int r = clair_words_u64(params->words, "seed", 0, &seed, error);
	if (r == 0)
		r = clair_torch_skip_word(params->words, &skip, error);
	if (r == 0)
		r = clair_words_bool(params->words, "generator", false,
		                     &s->explicit_generator, error);
	if (r == 0)
		r = clair_words_bool(params->words, "persistent", false, &s->persistent,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "workers", 0, UINT32_MAX, &workers,
		                     error);
	if (r == 0)
		r = clair_version_word(params->words, "version", "0.11", &s->version,
		                       error);
	if (r < 0) {
		free(s);
		return r;
	}
	s->workers = workers > 0;
	if (!s->explicit_generator && s->version < V0_11) {
		seed = 1;
	} else if (!s->explicit_generator) {
		clair_torch_seed(&mt, seed);
		clair_mt_skip(&mt, skip + 1);
		seed = clair_mt_u32(&mt);
	}
	clair_torch_walk_init(&s->walk, seed);
	*out = s;
	return 0;
}

/* Draws of the sampler's generator before the permutation of EPOCH. */
static uint64_t position(const struct state *s, uint64_t epoch)
{
	uint64_t one = clair_torch_randperm_draws(s->n);
	uint64_t base = s->explicit_generator ? 2 : 0;

	if (s->version < V0_11)
		return base * (s->persistent ? 1 : epoch + 1) + 2 * one * epoch;
	if (!s->workers)
		return (one + base) * epoch;
	return one + base + (s->persistent ? one : 2 * one + base) * epoch;
}

static int torch_stateful_epoch(void *p, uint64_t epoch, uint32_t rank,
                                struct clair_indices *out)
{
	struct state *s = p;
	uint32_t *at = clair_take_room(out, s->n);

	(void)rank;
	if (!at)
		return -ENOMEM;
	clair_torch_walk_perm(&s->walk, position(s, epoch), s->n, at);
	return 0;
}

static const struct clair_family_word words[] = {
    {"seed", "0", "of torch.manual_seed; with generator=1, of the generator"},
    CLAIR_TORCH_SKIP_WORDS,
    {"generator", "0", "1: the loader was given a generator"},
    {"persistent", "0", "1: persistent workers"},
    {"workers", "0", "any: an iterator draws two permutations"},
    {"version", "0.11", "of torchdata"},
    {NULL},
};

const struct clair_family clair_family_torch_stateful = {
    .name = "torch-stateful",
    .help = "torchdata.stateful_dataloader.StatefulDataLoader(shuffle=True)",
    .versions = "torchdata >= 0.8",
    .words = words,
    .open = torch_stateful_open,
    .epoch = torch_stateful_epoch,
    .close = free,
};
