/* SPDX-License-Identifier: BSD-3-Clause */
/* RandomSampler without a generator. torch >= 1.9: each epoch a generator of its own,
 * seeded by two u32 of the default one (whose second is what counts), which stands
 * `skip` draws after torch.manual_seed and moves `stride` an epoch: base seed (2), seed
 * (2). Before, the permutation itself came from the default generator, in 1.7 and 1.8
 * after two u32 that nobody used. */
#include <errno.h>
#include <stdlib.h>

#include "torch_draw.h"

#define V1_7 1007000u
#define V1_9 1009000u

struct state {
	struct clair_torch_random sampler;
	uint64_t skip, base, stride, first; /* first: from epoch 0 to epoch 1 */
	struct clair_torch_walk walk, own;
};

static int read_strides(struct state *s, const struct clair_words *words,
                        uint64_t fallback, char **error)
{
	if (s->sampler.version < V1_9)
		fallback += clair_torch_random_draws(&s->sampler) -
		            (s->sampler.version < V1_7 ? 2 : 0);
	int r =
	    clair_words_uint(words, "stride", fallback, UINT32_MAX, &s->stride, error);
	if (r == 0)
		r = clair_words_uint(words, "first", s->stride, UINT32_MAX, &s->first,
		                     error);
	return r;
}

static int open_with(const struct clair_order_params *params, uint64_t base, void **out,
                     char **error)
{
	struct state *s = calloc(1, sizeof *s);
	uint64_t seed = 0;

	if (!s)
		return -ENOMEM;
	int r = clair_words_u64(params->words, "seed", 0, &seed, error);
	if (r == 0)
		r = clair_torch_skip_word(params->words, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(params->words, "base", base, 1u << 20, &s->base,
		                     error);
	if (r == 0)
		r = clair_torch_random_words(&s->sampler, params, error);
	if (r == 0)
		r = read_strides(s, params->words, s->base + 2, error);
	if (r < 0) {
		free(s);
		return r;
	}
	clair_torch_walk_init(&s->walk, seed);
	*out = s;
	return 0;
}

static int torch_default_open(const struct clair_order_params *params, void **out,
                              char **error)
{
	return open_with(params, 2, out, error);
}

/* torchdata.nodes has no base seed. */
static int torchdata_nodes_open(const struct clair_order_params *params, void **out,
                                char **error)
{
	return open_with(params, 0, out, error);
}

static int torch_default_epoch(void *p, uint64_t epoch, uint32_t rank,
                               struct clair_indices *out)
{
	struct state *s = p;
	uint64_t draw = s->skip + s->base;

	(void)rank;
	if (epoch)
		draw += s->first + (epoch - 1) * s->stride;
	if (s->sampler.version < V1_9) {
		clair_torch_walk_to(&s->walk,
		                    draw + (s->sampler.version < V1_7 ? 0 : 2));
		return clair_torch_random_epoch(&s->sampler, &s->walk, out);
	}
	clair_torch_walk_init(&s->own, clair_torch_walk_u32(&s->walk, draw + 1));
	return clair_torch_random_epoch(&s->sampler, &s->own, out);
}

#define WORDS(base, stride)                                                            \
	{"seed", "0", "of torch.manual_seed"}, CLAIR_TORCH_SKIP_WORDS,                 \
	    {"base", base,                                                             \
	     "u32 drawn before each epoch's seed (the loader's base seed)"},           \
	    {"stride", stride,                                                         \
	     "u32 of the default generator drawn an epoch; 6: a "                      \
	     "validation loader too, 2: persistent workers"},                          \
	    {"first", "",                                                              \
	     "u32 from epoch 0 to 1 where other than stride (persistent "              \
	     "train and validation: first=4, stride=2)"},                              \
	    CLAIR_TORCH_RANDOM_WORDS,                                                  \
	{                                                                              \
		NULL                                                                   \
	}

static const struct clair_family_word words[] = {WORDS("2", "4")};
static const struct clair_family_word nodes_words[] = {WORDS("0", "2")};

const struct clair_family clair_family_torch_default = {
    .name = "torch-default",
    .help = "torch.utils.data.RandomSampler on the default generator",
    .versions = "",
    .words = words,
    .open = torch_default_open,
    .epoch = torch_default_epoch,
    .close = free,
};

const struct clair_family clair_family_torchdata_nodes = {
    .name = "torchdata-nodes",
    .help = "torchdata.nodes.Loader over a SamplerWrapper(RandomSampler)",
    .versions = "",
    .words = nodes_words,
    .open = torchdata_nodes_open,
    .epoch = torch_default_epoch,
    .close = free,
};
