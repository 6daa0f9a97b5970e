/* SPDX-License-Identifier: BSD-3-Clause */
/* fastai's DataLoader(shuffle=True) from the middle: each epoch has a generator of its own, which
 * also draws the next one's seed. So the seed of one epoch gives all that follow it. */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"
#include "python_random.h"

struct state {
	uint32_t n, world;
	enum clair_take take;
	uint64_t seed;
	uint64_t next; /* the epoch that MT will seed, 0: none yet */
	struct clair_mt mt;
	uint32_t *order;
};

static void fastai_chain_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->order);
	free(s);
}

static int fastai_chain_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->order = malloc(((size_t)s->n + 1) * sizeof *s->order);
	int r = s->order ? 0 : -ENOMEM;
	if (r == 0)
		r = clair_words_uint(params->words, "seed", 0, UINT32_MAX, &s->seed, error);
	if (r == 0)
		r = clair_take_word(params->words, CLAIR_TAKE_BLOCK_PAD, &s->take, error);
	if (r < 0) {
		fastai_chain_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int fastai_chain_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	int r = 0;

	if (s->n == 0)
		return 0;
	if (s->next > epoch + 1)
		s->next = 0;
	for (; s->next <= epoch && r == 0; s->next++) {
		uint64_t seed = s->next ? clair_py_randbelow(&s->mt, 1ull << 32) : s->seed;
		clair_py_seed(&s->mt, seed);
		r = clair_py_sample(&s->mt, s->n, s->n, s->order);
	}
	if (r < 0)
		return r;
	return clair_take(s->take, s->order, s->n, s->world, rank, out);
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "of the first epoch's own generator" },
	{ "take", "block-pad", "a rank's part: all, stride, pad, drop, block, block-pad" },
	{ NULL },
};

const struct clair_family clair_family_fastai_chain = {
	.name = "fastai-chain",
	.help = "fastai.data.load.DataLoader(shuffle=True) by the seed of its first epoch",
	.versions = "fastai 2.8",
	.words = words,
	.open = fastai_chain_open,
	.epoch = fastai_chain_epoch,
	.close = fastai_chain_close,
};
