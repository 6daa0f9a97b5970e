/* SPDX-License-Identifier: BSD-3-Clause */
/* Samplers that differ from DistributedSampler in the seed of an epoch, in what becomes
 * of the tail, or in how often a sample comes: MMEngine, MONAI, DeepSpeed, Composer,
 * torchvision's repeated augmentation and video samplers, timm's repeated augmentation.
 */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"
#include "torch_draw.h"

struct state {
	struct clair_torch_cache cache;
	uint32_t world;
	uint64_t seed;
	bool add_epoch;
	enum clair_take take;
	uint64_t repeats,
	    most;       /* each index so often running; at most so many a rank */
	uint64_t group; /* neighbours that stay together, 0: none */
};

static void around_close(void *p)
{
	struct state *s = p;

	if (s)
		clair_torch_cache_finish(&s->cache);
	free(s);
}

/* What all have: seed (when SEED_WORD) and shuffle. */
static int open_common(const struct clair_order_params *params, bool seed_word,
                       struct state **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);
	bool shuffle = true;
	int r;

	if (!s)
		return -ENOMEM;
	s->cache.n = params->n;
	s->world = params->world;
	s->add_epoch = true;
	s->take = CLAIR_TAKE_PAD;
	r = clair_words_bool(params->words, "shuffle", true, &shuffle, error);
	if (r == 0 && seed_word)
		r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	s->cache.ordered = !shuffle;
	if (r < 0)
		around_close(s);
	else
		*out = s;
	return r;
}

/* KEY=0: the last round is not filled up. */
static int open_uneven(const struct clair_order_params *params, const char *key,
                       void **out, char **error)
{
	struct state *s = NULL;
	bool even = true;
	int r = open_common(params, true, &s, error);

	if (r == 0) {
		r = clair_words_bool(params->words, key, true, &even, error);
		s->take = even ? CLAIR_TAKE_PAD : CLAIR_TAKE_STRIDE;
	}
	if (r < 0)
		around_close(s);
	else
		*out = s;
	return r;
}

static int mmengine_open(const struct clair_order_params *params, void **out,
                         char **error)
{
	return open_uneven(params, "round_up", out, error);
}

static int monai_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_uneven(params, "even_divisible", out, error);
}

static int composer_open(const struct clair_order_params *params, void **out,
                         char **error)
{
	struct state *s = NULL;
	int r = open_common(params, true, &s, error);

	*out = s;
	return r;
}

static int deepspeed_open(const struct clair_order_params *params, void **out,
                          char **error)
{
	struct state *s = NULL;
	int r = open_common(params, true, &s, error);

	*out = s;
	if (r == 0)
		s->add_epoch = false;
	return r;
}

static int read_repeats(struct state *s, const struct clair_order_params *params,
                        const char *key, char **error)
{
	int r = clair_words_uint(params->words, key, 3, 1u << 16, &s->repeats, error);

	if (r == 0 && !s->repeats)
		r = clair_bad(error, "%s=0: it must be at least 1", key);
	return r;
}

static int torchvision_ra_open(const struct clair_order_params *params, void **out,
                               char **error)
{
	struct state *s = NULL;
	int r = open_common(params, true, &s, error);

	if (r == 0)
		r = read_repeats(s, params, "repetitions", error);
	if (r < 0) {
		around_close(s);
		return r;
	}
	s->most = params->n / 256 * 256ul / params->world;
	*out = s;
	return 0;
}

static int timm_repeat_open(const struct clair_order_params *params, void **out,
                            char **error)
{
	struct state *s = NULL;
	uint64_t round = 256, ratio = 0;
	int r = open_common(params, false, &s, error);

	if (r == 0)
		r = read_repeats(s, params, "repeats", error);
	if (r == 0)
		r = clair_words_uint(params->words, "selected_round", 256, UINT32_MAX,
		                     &round, error);
	if (r == 0)
		r = clair_words_uint(params->words, "selected_ratio", 0, UINT32_MAX,
		                     &ratio, error);
	if (r < 0) {
		around_close(s);
		return r;
	}
	if (!ratio)
		ratio = params->world;
	s->most = round && params->n >= round ? params->n / round * round / ratio
	                                      : (params->n + ratio - 1) / ratio;
	*out = s;
	return 0;
}

static int torchvision_video_open(const struct clair_order_params *params, void **out,
                                  char **error)
{
	struct state *s = NULL;
	int r = open_common(params, false, &s, error);

	if (r == 0)
		r = clair_words_uint(params->words, "group_size", 1, UINT32_MAX,
		                     &s->group, error);
	if (r == 0 && !s->group)
		r = clair_bad(error, "group_size=0: it must be at least 1");
	if (r < 0)
		around_close(s);
	else
		*out = s;
	return r;
}

/* [rank::world] of each index REPEATS times running, filled up from the start. */
static int repeated(const struct state *s, const uint32_t *order, uint32_t rank,
                    struct clair_indices *out)
{
	uint64_t length = s->cache.n * s->repeats;
	uint64_t share = (length + s->world - 1) / s->world;
	uint64_t count = s->most < share ? s->most : share;
	uint32_t *at = clair_take_room(out, count);

	if (!at)
		return -ENOMEM;
	for (uint64_t k = 0, i = rank; k < count; k++, i += s->world)
		at[k] = order[i % length / s->repeats];
	return 0;
}

/* Groups of neighbours in the permutation go round the ranks. */
static int grouped(const struct state *s, const uint32_t *order, uint32_t rank,
                   struct clair_indices *out)
{
	uint64_t n = s->cache.n, groups = (n / s->group + s->world - 1) / s->world;
	int r = 0;

	for (uint64_t g = 0; g < groups; g++)
		for (uint64_t i = 0; i < s->group && r == 0; i++)
			r = clair_indices_append(
			    out, order[((g * s->world + rank) * s->group + i) % n]);
	return r;
}

static int around_epoch(void *p, uint64_t epoch, uint32_t rank,
                        struct clair_indices *out)
{
	struct state *s = p;
	const uint32_t *order =
	    clair_torch_cache_get(&s->cache, s->seed + (s->add_epoch ? epoch : 0));

	if (!order)
		return -ENOMEM;
	if (!s->cache.n)
		return 0;
	if (s->group)
		return grouped(s, order, rank, out);
	if (s->repeats)
		return repeated(s, order, rank, out);
	return clair_take(s->take, order, s->cache.n, s->world, rank, out);
}

#define SEED_WORD                                                                      \
	{                                                                              \
		"seed", "0", "of the sampler; the epoch is added"                      \
	}
#define SHUFFLE_WORD                                                                   \
	{                                                                              \
		"shuffle", "1", "0: in order"                                          \
	}

static const struct clair_family_word mmengine_words[] = {
    SEED_WORD,
    SHUFFLE_WORD,
    {"round_up", "1", "0: the last round is not filled up"},
    {NULL}};
static const struct clair_family_word monai_words[] = {
    SEED_WORD,
    SHUFFLE_WORD,
    {"even_divisible", "1", "0: the last round is not filled up"},
    {NULL}};
static const struct clair_family_word composer_words[] = {
    SEED_WORD, SHUFFLE_WORD, {NULL}};
static const struct clair_family_word deepspeed_words[] = {
    {"seed", "0", "of the sampler; every epoch is alike"}, SHUFFLE_WORD, {NULL}};
static const struct clair_family_word ra_words[] = {
    SEED_WORD, SHUFFLE_WORD, {"repetitions", "3", "how often a sample comes"}, {NULL}};
static const struct clair_family_word repeat_words[] = {
    SHUFFLE_WORD,
    {"repeats", "3", "--aug-repeats"},
    {"selected_round", "256", "an epoch is cut to a multiple of this"},
    {"selected_ratio", "0", "ranks that share an epoch; 0: world"},
    {NULL},
};
static const struct clair_family_word video_words[] = {
    SHUFFLE_WORD, {"group_size", "1", "clips that stay together"}, {NULL}};

#define DEFINE(id, title, text, word_list)                                             \
	const struct clair_family clair_family_##id = {                                \
	    .name = title,                                                             \
	    .help = text,                                                              \
	    .versions = "",                                                            \
	    .words = word_list,                                                        \
	    .open = id##_open,                                                         \
	    .epoch = around_epoch,                                                     \
	    .close = around_close,                                                     \
	}

DEFINE(mmengine, "mmengine", "mmengine.dataset.DefaultSampler", mmengine_words);
DEFINE(monai, "monai", "monai.data.DistributedSampler", monai_words);
DEFINE(composer, "composer", "Composer's dist.get_sampler: DistributedSampler(seed 0)",
       composer_words);
DEFINE(deepspeed, "deepspeed",
       "DeepSpeedDataLoader: a DistributedSampler without set_epoch", deepspeed_words);
DEFINE(torchvision_ra, "torchvision-ra", "RASampler of torchvision's references",
       ra_words);
DEFINE(timm_repeat, "timm-repeat-aug", "timm's RepeatAugSampler (seed = epoch)",
       repeat_words);
DEFINE(torchvision_video, "torchvision-video",
       "torchvision.datasets.samplers.DistributedSampler (seed = epoch)", video_words);
