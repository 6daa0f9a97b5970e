/* SPDX-License-Identifier: BSD-3-Clause */
/* torch.utils.data.RandomSampler with an explicit generator, torch >= 1.11: one generator
 * for the run; an epoch draws the loader's base seed (2 u32), a permutation, and one more
 * when it is exhausted. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sampler.h"
#include "torch_perm.h"

struct state {
	uint32_t n;
	uint64_t seed, skip;
	bool persistent; /* persistent workers draw the base seed once */
	uint64_t next;   /* the epoch that MT stands before */
	struct clair_mt mt;
};

static int torch_random_open(const struct clair_order_params *params, void **out,
			     char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "skip", 0, UINT64_MAX, &s->skip, error);
	if (r == 0)
		r = clair_words_bool(params->words, "persistent", false, &s->persistent,
				     error);
	if (r < 0) {
		free(s);
		return r;
	}
	s->next = UINT64_MAX;
	*out = s;
	return 0;
}

static void stand_before(struct state *s, uint64_t epoch)
{
	uint64_t draws = clair_torch_randperm_draws(s->n);

	if (s->next == UINT64_MAX || s->next > epoch) {
		clair_torch_seed(&s->mt, s->seed);
		clair_mt_skip(&s->mt, s->skip);
		s->next = 0;
	}
	uint64_t behind = epoch - s->next;
	uint64_t bases = s->persistent ? (s->next == 0 && behind ? 1 : 0) : behind;
	clair_mt_skip(&s->mt, 2 * bases + 2 * draws * behind);
	s->next = epoch;
}

static int torch_random_epoch(void *p, uint64_t epoch, uint32_t rank,
			      struct clair_indices *out)
{
	struct state *s = p;

	(void)rank; /* every rank reads everything */
	int r = clair_indices_reserve(out, out->count + s->n);
	if (r < 0)
		return r;
	stand_before(s, epoch);
	if (!s->persistent || epoch == 0)
		clair_mt_skip(&s->mt, 2);
	clair_torch_randperm(&s->mt, s->n, out->at + out->count);
	clair_mt_skip(&s->mt, clair_torch_randperm_draws(s->n));
	out->count += s->n;
	s->next = epoch + 1;
	return 0;
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "seed of the explicit generator" },
	{ "skip", "0", "u32 drawn from it before the first epoch" },
	{ "persistent", "0", "1: persistent workers (base seed drawn once)" },
	{ NULL },
};

const struct clair_family clair_family_torch_random = {
	.name = "torch-random",
	.help = "torch.utils.data.RandomSampler, generator=G(seed)",
	.versions = "torch >= 1.11",
	.words = words,
	.open = torch_random_open,
	.epoch = torch_random_epoch,
	.close = free,
};
