/* SPDX-License-Identifier: BSD-3-Clause */
/* torch.utils.data.DistributedSampler: a permutation by G(seed + epoch), padded or cut to
 * a multiple of the world, rank r takes [r::world]. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "sampler.h"
#include "torch_perm.h"

struct state {
	uint32_t n, world, share; /* samples a rank */
	uint64_t seed;
	bool shuffle;
	uint64_t epoch;  /* that PERMUTATION is of, when it is there */
	uint32_t *permutation;
	bool made;
};

static void torch_distributed_close(void *p)
{
	struct state *s = p;

	if (s)
		free(s->permutation);
	free(s);
}

static uint32_t share_of(uint32_t n, uint32_t world, bool drop_last)
{
	/* With drop_last the tail that does not fill a round is left out: as the class
	 * computes it, ceil((n - world) / world). */
	if (drop_last && n % world)
		return n > world ? (n - world + world - 1) / world : 0;
	return (uint32_t)(((uint64_t)n + world - 1) / world);
}

static int torch_distributed_open(const struct clair_order_params *params, void **out,
				  char **error)
{
	bool drop_last;
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_bool(params->words, "shuffle", true, &s->shuffle, error);
	if (r == 0)
		r = clair_words_bool(params->words, "drop_last", false, &drop_last, error);
	if (r == 0) {
		s->share = share_of(s->n, s->world, drop_last);
		s->permutation = malloc(sizeof(uint32_t) * (s->n ? s->n : 1));
		r = s->permutation ? 0 : -ENOMEM;
	}
	if (r < 0) {
		torch_distributed_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static void permute(struct state *s, uint64_t epoch)
{
	struct clair_mt mt;

	if (s->made && (!s->shuffle || s->epoch == epoch))
		return;
	if (s->shuffle) {
		clair_torch_seed(&mt, s->seed + epoch);
		clair_torch_randperm(&mt, s->n, s->permutation);
	} else {
		for (uint32_t i = 0; i < s->n; i++)
			s->permutation[i] = i;
	}
	s->epoch = epoch;
	s->made = true;
}

static int torch_distributed_epoch(void *p, uint64_t epoch, uint32_t rank,
				   struct clair_indices *out)
{
	struct state *s = p;

	int r = clair_indices_reserve(out, out->count + s->share);
	if (r < 0 || !s->n)
		return r;
	permute(s, epoch);
	uint64_t at = rank;
	for (uint32_t k = 0; k < s->share; k++, at += s->world) {
		/* Padding repeats the list from its start, as often as needed. */
		if (at >= s->n)
			at %= s->n;
		out->at[out->count++] = s->permutation[at];
	}
	return 0;
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "seed of the sampler; the epoch is added" },
	{ "shuffle", "1", "0: in order" },
	{ "drop_last", "0", "1: the tail that does not fill all ranks is left out" },
	{ NULL },
};

const struct clair_family clair_family_torch_distributed = {
	.name = "torch-distributed",
	.help = "torch.utils.data.DistributedSampler with set_epoch",
	.versions = "",
	.words = words,
	.open = torch_distributed_open,
	.epoch = torch_distributed_epoch,
	.close = torch_distributed_close,
};
