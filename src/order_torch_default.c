/* SPDX-License-Identifier: BSD-3-Clause */
/* RandomSampler without a generator, torch >= 1.9: each epoch a generator of its own,
 * seeded by two u32 of the default one (whose second is what counts), which stands `skip`
 * draws after torch.manual_seed and moves `stride` an epoch: base seed (2), seed (2). */
#include <errno.h>
#include <stdlib.h>

#include "sampler.h"
#include "torch_perm.h"

struct state {
	uint32_t n;
	uint64_t seed, skip, stride;
	uint64_t at; /* draws that MT has made */
	struct clair_mt mt;
};

static int torch_default_open(const struct clair_order_params *params, void **out,
			      char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "skip", 0, UINT64_MAX / 2, &s->skip,
				     error);
	if (r == 0)
		r = clair_words_uint(params->words, "stride", 4, UINT32_MAX, &s->stride,
				     error);
	if (r < 0) {
		free(s);
		return r;
	}
	clair_torch_seed(&s->mt, s->seed);
	*out = s;
	return 0;
}

static int torch_default_epoch(void *p, uint64_t epoch, uint32_t rank,
			       struct clair_indices *out)
{
	struct state *s = p;
	struct clair_mt own;
	uint64_t draw = s->skip + 3 + epoch * s->stride;

	(void)rank;
	int r = clair_indices_reserve(out, out->count + s->n);
	if (r < 0)
		return r;
	if (draw < s->at) {
		clair_torch_seed(&s->mt, s->seed);
		s->at = 0;
	}
	clair_mt_skip(&s->mt, draw - s->at);
	clair_torch_seed(&own, clair_mt_u32(&s->mt));
	s->at = draw + 1;
	clair_torch_randperm(&own, s->n, out->at + out->count);
	out->count += s->n;
	return 0;
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "of torch.manual_seed" },
	{ "skip", "0", "u32 drawn from the default generator before the first epoch" },
	{ "stride", "4", "u32 drawn an epoch" },
	{ NULL },
};

const struct clair_family clair_family_torch_default = {
	.name = "torch-default",
	.help = "torch.utils.data.RandomSampler on the default generator",
	.versions = "torch >= 1.9",
	.words = words,
	.open = torch_default_open,
	.epoch = torch_default_epoch,
	.close = free,
};
