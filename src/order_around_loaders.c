/* SPDX-License-Identifier: BSD-3-Clause */
/* Frameworks that put a DistributedSampler in place when there are several processes
 * and leave a plain loader when there is one: Lightning, timm, Ultralytics. */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"
#include "torch_draw.h"

/* The seed of the generator that YOLO loaders share, to which the user's is added. */
#define ULTRALYTICS_SEED 6148914691236517204ull

struct state {
	struct clair_torch_cache cache;
	struct clair_torch_walk walk;
	uint32_t world;
	uint64_t seed, skip, stride;
	uint64_t ahead,
	    batches;   /* index lists drawn ahead, batches an epoch; 0: no lag */
	bool plain;    /* a plain loader in each process */
	bool infinite; /* and it never ends */
};

static void around_close(void *p)
{
	struct state *s = p;

	if (s)
		clair_torch_cache_finish(&s->cache);
	free(s);
}

static struct state *make(const struct clair_order_params *params)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return NULL;
	s->cache.n = params->n;
	s->world = params->world;
	s->plain = params->world == 1;
	s->stride = 4;
	return s;
}

static int finish_open(struct state *s, int r, void **out)
{
	if (r < 0) {
		around_close(s);
		return r;
	}
	clair_torch_walk_init(&s->walk, s->seed);
	*out = s;
	return 0;
}

static int lightning_open(const struct clair_order_params *params, void **out,
                          char **error)
{
	const struct clair_words *w = params->words;
	struct state *s = make(params);
	bool shuffle = true, fabric = false, distributed = true;

	if (!s)
		return -ENOMEM;
	int r = clair_words_u64(w, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_torch_skip_word(w, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(w, "stride", 4, UINT32_MAX, &s->stride, error);
	if (r == 0)
		r = clair_words_bool(w, "shuffle", true, &shuffle, error);
	if (r == 0)
		r = clair_words_bool(w, "fabric", false, &fabric, error);
	if (r == 0)
		r = clair_words_bool(w, "distributed", true, &distributed, error);
	s->plain = s->plain || !distributed;
	/* The Trainer shuffles every train loader of several processes. */
	s->cache.ordered = !shuffle && (s->plain || fabric);
	return finish_open(s, r, out);
}

static int timm_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = make(params);
	bool multi = false;

	if (!s)
		return -ENOMEM;
	int r = clair_words_u64(params->words, "seed", 42, &s->seed, error);
	if (r == 0)
		r = clair_torch_skip_word(params->words, &s->skip, error);
	if (r == 0)
		r = clair_words_bool(params->words, "multi_epochs", false, &multi,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "stride", multi ? 2 : 4, UINT32_MAX,
		                     &s->stride, error);
	if (!s->plain)
		s->seed = 0;
	return finish_open(s, r, out);
}

static int ultralytics_open(const struct clair_order_params *params, void **out,
                            char **error)
{
	struct state *s = make(params);
	uint64_t batch = 0, workers = 0, prefetch = 4;
	bool shuffle = true;

	if (!s)
		return -ENOMEM;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", 16, UINT32_MAX, &batch,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "workers", 8, 1u << 20, &workers,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "prefetch", 4, 1u << 20, &prefetch,
		                     error);
	if (r == 0)
		r = clair_words_bool(params->words, "shuffle", true, &shuffle, error);
	if (r == 0 && !batch)
		r = clair_bad(error, "batch=0: it must be at least 1");
	if (r == 0) {
		uint64_t share = ((uint64_t)params->n + s->world - 1) / s->world;

		s->batches = (share + batch - 1) / batch;
		s->ahead = workers * prefetch;
	}
	s->cache.ordered = !shuffle;
	s->infinite = s->plain;
	if (s->plain)
		s->seed += ULTRALYTICS_SEED;
	return finish_open(s, r, out);
}

/* A loader that never ends asks for a pass's order while it still runs the one before:
 * the sampler has not been told the new epoch yet. */
static uint64_t lagging(const struct state *s, uint64_t epoch)
{
	if (!s->batches)
		return epoch;
	uint64_t taken = epoch * s->batches;

	return taken > s->ahead ? (taken - s->ahead) / s->batches : 0;
}

static int around_epoch(void *p, uint64_t epoch, uint32_t rank,
                        struct clair_indices *out)
{
	struct state *s = p;
	uint32_t n = s->cache.n;

	if (s->infinite && !s->cache.ordered) {
		uint32_t *at = clair_take_room(out, n);

		if (!at)
			return -ENOMEM;
		clair_torch_walk_perm(
		    &s->walk, 2 + 2 * clair_torch_randperm_draws(n) * epoch, n, at);
		return 0;
	}
	uint64_t seed = s->seed + lagging(s, epoch);
	if (s->plain && !s->cache.ordered)
		seed = clair_torch_walk_u32(&s->walk, s->skip + 3 + s->stride * epoch);
	const uint32_t *order = clair_torch_cache_get(&s->cache, seed);
	if (!order)
		return -ENOMEM;
	return clair_take(s->plain ? CLAIR_TAKE_ALL : CLAIR_TAKE_PAD, order, n,
	                  s->world, rank, out);
}

static const struct clair_family_word lightning_words[] = {
    {"seed", "0",
     "of seed_everything (several processes: 0 when only torch.manual_seed was "
     "called)"},
    {"shuffle", "1",
     "the loader's; the Trainer shuffles anyway with several processes"},
    {"fabric", "0", "1: Fabric instead of the Trainer"},
    {"distributed", "1", "0: use_distributed_sampler=False"},
    {"stride", "4",
     "one process: u32 of the default generator an epoch; 6 with a "
     "validation loader, 8 with a shuffled one"},
    CLAIR_TORCH_SKIP_WORDS,
    {NULL},
};

static const struct clair_family_word timm_words[] = {
    {"seed", "42", "--seed (plus the rank); several processes: not used"},
    {"multi_epochs", "0", "1: --use-multi-epochs-loader"},
    {"stride", "", "one process: u32 of the default generator an epoch"},
    CLAIR_TORCH_SKIP_WORDS,
    {NULL},
};

static const struct clair_family_word ultralytics_words[] = {
    {"seed", "0", "the argument seed; before 8.4.121 one GPU does not use it: 0"},
    {"batch", "16", "several GPUs: images a GPU and step"},
    {"workers", "8", "several GPUs: loader workers"},
    {"prefetch", "4", "several GPUs: prefetch_factor"},
    {"shuffle", "1", "0: rect"},
    {NULL},
};

const struct clair_family clair_family_lightning = {
    .name = "lightning",
    .help = "Lightning's Trainer or Fabric, DDP or one process",
    .versions = "lightning >= 2",
    .words = lightning_words,
    .open = lightning_open,
    .epoch = around_epoch,
    .close = around_close,
};

const struct clair_family clair_family_timm = {
    .name = "timm",
    .help = "timm's create_loader(is_training=True)",
    .versions = "",
    .words = timm_words,
    .open = timm_open,
    .epoch = around_epoch,
    .close = around_close,
};

const struct clair_family clair_family_ultralytics = {
    .name = "ultralytics",
    .help = "Ultralytics' InfiniteDataLoader: the sampler's order, without its cache",
    .versions = "ultralytics >= 8",
    .words = ultralytics_words,
    .open = ultralytics_open,
    .epoch = around_epoch,
    .close = around_close,
};
