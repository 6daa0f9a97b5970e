/* SPDX-License-Identifier: BSD-3-Clause */
/* Samplers of training by iterations: one generator permutes for ever, rank r takes
 * [r::world] of the whole stream. Here an epoch is one pass over the data set, however
 * its length goes into the world's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "order_take.h"
#include "torch_draw.h"

struct state {
	uint32_t n, world;
	uint64_t seed;
	bool shuffle;
	float *factors; /* detectron2's RepeatFactorTrainingSampler; owned, or NULL */
	uint32_t
	    *subset; /* its RandomSubsetTrainingSampler: N of them; owned, or NULL */
	struct clair_mt mt;
	struct clair_indices pass; /* of epoch NEXT - 1 */
	uint64_t next, begin;      /* begin: samples of the passes before that one */
};

static void infinite_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->factors);
	free(s->subset);
	clair_indices_finish(&s->pass);
	free(s);
}

static int open_common(const struct clair_order_params *params, struct state **out,
                       char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_bool(params->words, "shuffle", true, &s->shuffle,
		                     error);
	if (r < 0) {
		infinite_close(s);
		return r;
	}
	clair_torch_seed(&s->mt, s->seed);
	*out = s;
	return 0;
}

static int mmengine_infinite_open(const struct clair_order_params *params, void **out,
                                  char **error)
{
	struct state *s = NULL;
	int r = open_common(params, &s, error);

	*out = s;
	return r;
}

static int read_factors(struct state *s, const char *file, char **error)
{
	autofclose FILE *f = fopen(file, "re");
	double value;

	if (!f)
		return clair_bad(error, "repeat_factors=%s: %s", file, strerror(errno));
	s->factors = malloc(sizeof *s->factors * (s->n + 1ul));
	if (!s->factors)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++) {
		if (fscanf(f, "%lf", &value) != 1 || !(value >= 0) || value > 1e6)
			return clair_bad(
			    error,
			    "repeat_factors=%s: line %u is no factor; %u are needed",
			    file, i + 1, s->n);
		s->factors[i] = (float)value;
	}
	return 0;
}

static int make_subset(struct state *s, double ratio, uint64_t seed)
{
	struct clair_mt mt;

	s->subset = malloc(sizeof *s->subset * (s->n + 1ul));
	if (!s->subset)
		return -ENOMEM;
	clair_torch_seed(&mt, seed);
	clair_torch_randperm(&mt, s->n, s->subset);
	s->n = (uint32_t)(s->n * ratio);
	return 0;
}

static int detectron2_open(const struct clair_order_params *params, void **out,
                           char **error)
{
	const char *file = clair_words_get(params->words, "repeat_factors");
	struct state *s = NULL;
	double ratio = 1;
	uint64_t seed = 0;

	int r = open_common(params, &s, error);
	if (r < 0)
		return r;
	r = clair_words_double(params->words, "subset_ratio", 1, &ratio, error);
	if (r == 0)
		r = clair_words_u64(params->words, "subset_seed", s->seed, &seed,
		                    error);
	if (r == 0 && !(ratio > 0 && ratio <= 1))
		r = clair_bad(error, "subset_ratio: a number above 0, up to 1");
	if (r == 0 && file && ratio < 1)
		r = clair_bad(error,
		              "repeat_factors and subset_ratio are different samplers");
	if (r == 0 && file)
		r = read_factors(s, file, error);
	if (r == 0 && ratio < 1)
		r = make_subset(s, ratio, seed);
	if (r < 0)
		infinite_close(s);
	else
		*out = s;
	return r;
}

/* A factor's fraction is the chance of one time more; torch.rand in single precision.
 */
static int repeat(struct state *s, struct clair_indices *list)
{
	int r = 0;

	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		uint32_t times = (uint32_t)s->factors[i];
		float chance = s->factors[i] - (float)times;

		if ((float)(clair_mt_u32(&s->mt) & 0xffffff) / 16777216.0f < chance)
			times++;
		for (; times && r == 0; times--)
			r = clair_indices_append(list, i);
	}
	return r;
}

/* Makes the next pass. */
static int make_pass(struct state *s)
{
	struct clair_indices base = {0};
	int r = s->factors ? repeat(s, &base) : 0;
	uint32_t count = s->factors ? (uint32_t)base.count : s->n;

	s->begin += s->pass.count;
	s->pass.count = 0;
	uint32_t *at = r == 0 ? clair_take_room(&s->pass, count) : NULL;
	if (!at) {
		clair_indices_finish(&base);
		return -ENOMEM;
	}
	if (s->shuffle)
		clair_torch_randperm(&s->mt, count, at);
	else
		for (uint32_t i = 0; i < count; i++)
			at[i] = i;
	const uint32_t *map = s->factors ? base.at : s->subset;
	for (uint32_t i = 0; map && i < count; i++)
		at[i] = map[at[i]];
	clair_indices_finish(&base);
	s->next++;
	return 0;
}

static int reach(struct state *s, uint64_t epoch)
{
	int r = 0;

	if (s->next > epoch + 1) {
		clair_torch_seed(&s->mt, s->seed);
		s->pass.count = 0;
		s->next = s->begin = 0;
	}
	/* Passes that all draw alike are not made to be passed over. */
	if (!s->factors && epoch > s->next) {
		uint64_t over = epoch - s->next;

		if (s->shuffle)
			clair_mt_skip(&s->mt, over * clair_torch_randperm_draws(s->n));
		s->begin += s->pass.count + over * s->n;
		s->pass.count = 0;
		s->next = epoch;
	}
	while (s->next <= epoch && r == 0)
		r = make_pass(s);
	return r;
}

static int infinite_epoch(void *p, uint64_t epoch, uint32_t rank,
                          struct clair_indices *out)
{
	struct state *s = p;
	int r = reach(s, epoch);
	uint64_t first = (rank + s->world - s->begin % s->world) % s->world;

	for (uint64_t i = first; i < s->pass.count && r == 0; i += s->world)
		r = clair_indices_append(out, s->pass.at[i]);
	return r;
}

static const struct clair_family_word words[] = {
    {"seed", "0", "of the sampler (rank 0's)"},
    {"shuffle", "1", "0: in order"},
    {NULL},
};

static const struct clair_family_word detectron2_words[] = {
    {"seed", "0", "of the sampler (rank 0's)"},
    {"shuffle", "1", "0: in order"},
    {"repeat_factors", "",
     "RepeatFactorTrainingSampler: file with an image's factor a line"},
    {"subset_ratio", "1", "RandomSubsetTrainingSampler's"},
    {"subset_seed", "", "the subset's seed; seed by default"},
    {NULL},
};

const struct clair_family clair_family_mmengine_infinite = {
    .name = "mmengine-infinite",
    .help = "mmengine.dataset.InfiniteSampler; an epoch is a pass of all ranks",
    .versions = "",
    .words = words,
    .open = mmengine_infinite_open,
    .epoch = infinite_epoch,
    .close = infinite_close,
};

const struct clair_family clair_family_detectron2 = {
    .name = "detectron2",
    .help = "detectron2's TrainingSampler and its kin; an epoch is a pass of all ranks",
    .versions = "",
    .words = detectron2_words,
    .open = detectron2_open,
    .epoch = infinite_epoch,
    .close = infinite_close,
};
