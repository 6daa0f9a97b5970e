/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TORCH_DRAW_H
#define CLAIR_TORCH_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "mt19937.h"
#include "sampler.h"
#include "torch_perm.h"

/* What the families on torch's generators share: a generator that knows its position,
 * the permutation of an epoch that several ranks take their parts of, RandomSampler
 * itself. */

/* A generator, and how many u32 it has drawn. */
struct clair_torch_walk {
	uint64_t seed, at;
	struct clair_mt mt;
};

void clair_torch_walk_init(struct clair_torch_walk *w, uint64_t seed);
/* Stands after DRAWS u32. Forwards is cheap, backwards starts again from the seed. */
void clair_torch_walk_to(struct clair_torch_walk *w, uint64_t draws);
/* The u32 that is drawn after DRAWS others. */
uint32_t clair_torch_walk_u32(struct clair_torch_walk *w, uint64_t draws);
/* randperm(n) that begins after DRAWS others. */
void clair_torch_walk_perm(struct clair_torch_walk *w, uint64_t draws, uint32_t n,
                           uint32_t *out);

/* randperm(n, G(seed)), or 0 … n-1, kept until another seed is asked for. */
struct clair_torch_cache {
	uint32_t n;
	bool ordered; /* 0 … n-1 whatever the seed */
	bool made;
	uint64_t seed;
	uint32_t *items; /* owned */
};

/* The n indices, owned by CACHE, good until its next call; NULL when memory is out. */
const uint32_t *clair_torch_cache_get(struct clair_torch_cache *cache, uint64_t seed);
void clair_torch_cache_finish(struct clair_torch_cache *cache);

/* RandomSampler: what one epoch reads of its generator. */
struct clair_torch_random {
	uint32_t n, samples;
	bool replacement;
	uint32_t version; /* of torch, as clair_version_word has it */
};

#define CLAIR_TORCH_RANDOM_WORDS                                                       \
	{"replacement", "0", "1: drawn with replacement"},                             \
	    {"num_samples", "", "samples an epoch; n by default"},                     \
	{                                                                              \
		"version", "2.7", "of torch; what changed: 1.7, 1.9, 1.11, 2.7"   \
	}

/* The words replacement, num_samples, version. 0 or -EINVAL. */
int clair_torch_random_words(struct clair_torch_random *s,
                             const struct clair_order_params *params, char **error);
/* u32 of its generator that an epoch takes when it is read to the end. */
uint64_t clair_torch_random_draws(const struct clair_torch_random *s);
/* Appends an epoch; W stands at its begin, and at its end afterwards. 0 or -ENOMEM. */
int clair_torch_random_epoch(const struct clair_torch_random *s,
                             struct clair_torch_walk *w, struct clair_indices *out);

/* u32 of the default generator that a model's construction takes, by its name
 * ("resnet18", "timm/…"); 0 when the name is unknown. The I-th name for messages, NULL
 * past the end. */
uint64_t clair_torch_model_draws(const char *name);
const char *clair_torch_model_at(unsigned i);

/* The words skip and model: u32 drawn before the first epoch. 0 or -EINVAL. */
int clair_torch_skip_word(const struct clair_words *words, uint64_t *skip,
                          char **error);

#define CLAIR_TORCH_SKIP_WORDS                                                         \
	{"skip", "0", "u32 drawn from the generator before the first epoch"},          \
	{                                                                              \
		"model", "",                                                           \
		    "made before the first epoch, such as resnet50: its draws are "    \
		    "skipped"                                                          \
	}

#endif
