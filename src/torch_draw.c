/* SPDX-License-Identifier: BSD-3-Clause */
#include "torch_draw.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "order_take.h"

#define V1_7 1007000u
#define V1_9 1009000u
#define V1_11 1011000u
#define V2_7 2007000u

/* From this size on randint draws 64 bits: 2^28, before torch 2.7 2^32. */
#define WIDE_RANDINT (1u << 28)

void clair_torch_walk_init(struct clair_torch_walk *w, uint64_t seed)
{
	w->seed = seed;
	w->at = 0;
	clair_torch_seed(&w->mt, seed);
}

void clair_torch_walk_to(struct clair_torch_walk *w, uint64_t draws)
{
	if (draws < w->at)
		clair_torch_walk_init(w, w->seed);
	clair_mt_skip(&w->mt, draws - w->at);
	w->at = draws;
}

uint32_t clair_torch_walk_u32(struct clair_torch_walk *w, uint64_t draws)
{
	clair_torch_walk_to(w, draws);
	w->at++;
	return clair_mt_u32(&w->mt);
}

void clair_torch_walk_perm(struct clair_torch_walk *w, uint64_t draws, uint32_t n,
                           uint32_t *out)
{
	clair_torch_walk_to(w, draws);
	clair_torch_randperm(&w->mt, n, out);
	w->at += clair_torch_randperm_draws(n);
}

const uint32_t *clair_torch_cache_get(struct clair_torch_cache *cache, uint64_t seed)
{
	struct clair_mt mt;

	if (cache->made && (cache->ordered || cache->seed == seed))
		return cache->items;
	if (!cache->items)
		cache->items = malloc(sizeof *cache->items * (cache->n + 1ul));
	if (!cache->items)
		return NULL;
	if (cache->ordered) {
		for (uint32_t i = 0; i < cache->n; i++)
			cache->items[i] = i;
	} else {
		clair_torch_seed(&mt, seed);
		clair_torch_randperm(&mt, cache->n, cache->items);
	}
	cache->seed = seed;
	cache->made = true;
	return cache->items;
}

void clair_torch_cache_finish(struct clair_torch_cache *cache)
{
	free(cache->items);
	*cache = (struct clair_torch_cache){0};
}

int clair_torch_random_words(struct clair_torch_random *s,
                             const struct clair_order_params *params, char **error)
{
	uint64_t samples;

	s->n = params->n;
	int r = clair_words_bool(params->words, "replacement", false, &s->replacement,
	                         error);
	if (r == 0)
		r = clair_words_uint(params->words, "num_samples", params->n,
		                     UINT32_MAX, &samples, error);
	if (r == 0)
		r = clair_version_word(params->words, "version", "2.7", &s->version,
		                       error);
	if (r < 0)
		return r;
	s->samples = params->n ? (uint32_t)samples : 0;
	if (!s->replacement && s->samples != s->n && s->version < V1_11)
		return clair_bad(
		    error, "num_samples=%u: before torch 1.11 it needs replacement=1",
		    s->samples);
	return 0;
}

static bool wide(const struct clair_torch_random *s)
{
	return s->n >= WIDE_RANDINT && s->version >= V2_7;
}

uint64_t clair_torch_random_draws(const struct clair_torch_random *s)
{
	uint64_t one = clair_torch_randperm_draws(s->n);

	if (!s->n)
		return 0;
	if (s->replacement)
		return (uint64_t)s->samples * (wide(s) ? 2 : 1);
	/* From 1.11 on one permutation more than needed is drawn at the end. */
	return s->version >= V1_11 ? one * (s->samples / s->n + 1) : one;
}

int clair_torch_random_epoch(const struct clair_torch_random *s,
                             struct clair_torch_walk *w, struct clair_indices *out)
{
	uint32_t left = s->samples;
	uint64_t end = w->at + clair_torch_random_draws(s);

	if (!s->n)
		return 0;
	/* Whole permutations are written in place: room for the one that is cut. */
	if (clair_indices_reserve(out, out->count + left + (uint64_t)s->n) < 0)
		return -ENOMEM;
	uint32_t *at = out->at + out->count;
	out->count += left;
	if (s->replacement) {
		for (; left; left--)
			*at++ = wide(s) ? (uint32_t)(clair_mt_u64(&w->mt) % s->n)
			                : clair_mt_u32(&w->mt) % s->n;
		w->at = end;
		return 0;
	}
	for (; left; left -= left < s->n ? left : s->n, at += s->n)
		clair_torch_walk_perm(w, w->at, s->n, at);
	clair_torch_walk_to(w, end);
	return 0;
}

int clair_torch_skip_word(const struct clair_words *words, uint64_t *skip, char **error)
{
	const char *model = clair_words_get(words, "model");

	/* Millions of draws take milliseconds; a number that cannot be meant would
	 * hang. */
	int r = clair_words_uint(words, "skip", 0, 1ull << 44, skip, error);
	if (r < 0 || !model || !*model)
		return r;
	uint64_t draws = clair_torch_model_draws(model);
	if (!draws)
		return clair_bad(
		    error,
		    "model=%s: its draws are not known; give them as skip, or a "
		    "name such as resnet18, resnet50, vit_b_16",
		    model);
	*skip += draws;
	return 0;
}
