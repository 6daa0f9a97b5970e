/* SPDX-License-Identifier: BSD-3-Clause */
/* torch's SequentialSampler, and what anybody reads who does not shuffle. */
#include <errno.h>
#include <stdlib.h>

#include "sampler.h"

struct state {
	uint32_t n, world;
};

static int sequential_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = malloc(sizeof *s);

	(void)error;
	if (!s)
		return -ENOMEM;
	*s = (struct state){ params->n, params->world };
	*out = s;
	return 0;
}

/* Ranks read interleaved, without padding: a padded one is torch-distributed with
 * shuffle=0. */
static int sequential_epoch(void *p, uint64_t epoch, uint32_t rank,
			    struct clair_indices *out)
{
	const struct state *s = p;
	int r = 0;

	(void)epoch;
	for (uint64_t i = rank; i < s->n && r == 0; i += s->world)
		r = clair_indices_append(out, (uint32_t)i);
	return r;
}

static const struct clair_family_word words[] = { { NULL } };

const struct clair_family clair_family_sequential = {
	.name = "sequential",
	.help = "in dataset order, rank r takes [r::world]",
	.versions = "",
	.words = words,
	.open = sequential_open,
	.epoch = sequential_epoch,
	.close = free,
};
