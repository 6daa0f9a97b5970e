/* SPDX-License-Identifier: BSD-3-Clause */
/* DINOv2's samplers. The sharded ones give each rank its part of one permutation for
 * the whole run and shuffle it anew each pass. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_take.h"
#include "torch_draw.h"

enum kind { SHARDED_INFINITE, SHARDED_INFINITE_NEW, INFINITE, EPOCH };

struct state {
	uint32_t n, world;
	unsigned kind;
	uint64_t seed, size;
	struct clair_torch_cache cache; /* randperm(n, G(seed)) */
	struct clair_torch_walk walk;
	uint32_t *pass; /* INFINITE and EPOCH: of MADE - 1, for all ranks; owned */
	uint64_t made;
};

static void dinov2_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_torch_cache_finish(&s->cache);
	free(s->pass);
	free(s);
}

static int dinov2_open(const struct clair_order_params *params, void **out,
                       char **error)
{
	static const char *const kinds[] = {"sharded-infinite", "sharded-infinite-new",
	                                    "infinite", "epoch", NULL};
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = s->cache.n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_name_word(params->words, "type", kinds, SHARDED_INFINITE,
		                    &s->kind, error);
	if (r == 0)
		r = clair_words_uint(params->words, "size", params->n, UINT32_MAX,
		                     &s->size, error);
	if (r == 0 && s->kind >= INFINITE) {
		uint64_t room = s->size > s->n ? s->size : s->n;

		s->pass = malloc(sizeof *s->pass * (room + 1));
		r = s->pass ? 0 : -ENOMEM;
	}
	if (r < 0) {
		dinov2_close(s);
		return r;
	}
	clair_torch_walk_init(&s->walk, s->seed);
	*out = s;
	return 0;
}

static int sharded(struct state *s, uint64_t epoch, uint32_t rank,
                   struct clair_indices *out)
{
	const uint32_t *all = clair_torch_cache_get(&s->cache, s->seed);
	uint32_t count = s->n / s->world;
	uint32_t *at = all ? clair_take_room(out, count) : NULL;
	struct clair_mt mt;

	if (!at)
		return -ENOMEM;
	clair_torch_seed(&mt, s->seed + rank + (epoch << 24));
	if (s->kind == SHARDED_INFINITE_NEW) {
		clair_torch_randperm(&mt, count, at);
		for (uint32_t i = 0; i < count; i++)
			at[i] = all[rank + (uint64_t)at[i] * s->world];
		return 0;
	}
	for (uint32_t i = 0; i < count; i++) {
		uint32_t j = i ? clair_mt_u32(&mt) % (i + 1) : 0;

		at[i] = at[j];
		at[j] = all[rank + (uint64_t)i * s->world];
	}
	return 0;
}

/* As randperm, but with a draw for the last index, too. */
static void infinite_pass(struct state *s, uint64_t epoch)
{
	clair_torch_walk_to(&s->walk, epoch * s->n);
	clair_torch_walk_perm(&s->walk, s->walk.at, s->n, s->pass);
	clair_torch_walk_to(&s->walk, (epoch + 1) * s->n);
}

/* SIZE samples chosen from as many copies of the data set as that needs. */
static int epoch_pass(struct state *s, uint64_t epoch)
{
	uint64_t total = (s->size + s->n - 1) / s->n * s->n;
	struct clair_pcg64 g;

	if (total > UINT32_MAX)
		return -ENOMEM;
	clair_pcg64_seed(&g, s->seed ? s->seed * epoch : epoch);
	int r =
	    clair_pcg64_choice(&g, (uint32_t)total, (uint32_t)s->size, true, s->pass);
	for (uint64_t i = 0; r == 0 && i < s->size; i++)
		s->pass[i] %= s->n;
	return r;
}

static int dinov2_epoch(void *p, uint64_t epoch, uint32_t rank,
                        struct clair_indices *out)
{
	struct state *s = p;
	int r = 0;

	if (!s->n)
		return 0;
	if (s->kind < INFINITE)
		return sharded(s, epoch, rank, out);
	if (s->made != epoch + 1) {
		s->made = 0;
		if (s->kind == INFINITE)
			infinite_pass(s, epoch);
		else
			r = epoch_pass(s, epoch);
		if (r < 0)
			return r;
		s->made = epoch + 1;
	}
	return clair_take(CLAIR_TAKE_STRIDE, s->pass, s->kind == EPOCH ? s->size : s->n,
	                  s->world, rank, out);
}

static const struct clair_family_word words[] = {
    {"seed", "0", "of the sampler"},
    {"type", "sharded-infinite",
     "sharded-infinite, sharded-infinite-new, infinite, epoch"},
    {"size", "", "type=epoch: samples an epoch of all ranks; n by default"},
    {NULL},
};

const struct clair_family clair_family_dinov2 = {
    .name = "dinov2",
    .help = "DINOv2's samplers; an epoch is one pass",
    .versions = "",
    .words = words,
    .open = dinov2_open,
    .epoch = dinov2_epoch,
    .close = dinov2_close,
};
