/* SPDX-License-Identifier: BSD-3-Clause */
/* Megatron-LM's MegatronPretrainingRandomSampler, dataloader_type cyclic. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "order_take.h"
#include "torch_perm.h"

struct state {
	uint32_t n, world;
	uint64_t batch, consumed;
	bool sharding;
};

static int cyclic_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_uint(params->words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_u64(params->words, "consumed", 0, &s->consumed, error);
	if (r == 0)
		r = clair_words_bool(params->words, "sharding", true, &s->sharding, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	if (r < 0) {
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

/* A pass is seeded with its number. With sharding each rank has a bucket of its own; only
 * whole micro batches are read. CONSUMED samples of the run are left out. */
static int cyclic_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	uint64_t unit = s->batch * s->world, active = s->n - s->n % unit;
	uint64_t bucket = s->n / unit * s->batch, full = s->n / s->batch * s->batch;
	autofree uint32_t *perm = malloc(((size_t)s->n + 1) * sizeof *perm);
	struct clair_mt mt;
	int r = perm ? 0 : -ENOMEM;

	if (r < 0 || active == 0)
		return r;
	uint64_t at = epoch == 0 ? s->consumed % active : 0, first = at + rank, by = s->world;
	uint64_t end = full, base = 0;
	clair_torch_seed(&mt, s->consumed / active + epoch);
	clair_torch_randperm(&mt, (uint32_t)(s->sharding ? bucket : full), perm);
	if (s->sharding) {
		first = at / s->world;
		by = 1;
		end = bucket;
		base = rank * bucket;
	}
	uint64_t count = first < end ? (end - first + by - 1) / by : 0;
	for (uint64_t k = 0; k < count - count % s->batch && r == 0; k++)
		r = clair_indices_append(out, (uint32_t)(base + perm[first + k * by]));
	return r;
}

static const struct clair_family_word words[] = {
	{ "batch", "1", "--micro-batch-size" },
	{ "consumed", "0", "samples consumed before the first pass" },
	{ "sharding", "1", "data_sharding" },
	{ NULL },
};

const struct clair_family clair_family_megatron_cyclic = {
	.name = "megatron-cyclic",
	.help = "Megatron-LM's random sampler, dataloader_type cyclic",
	.versions = "",
	.words = words,
	.open = cyclic_open,
	.epoch = cyclic_epoch,
	.close = free,
};
