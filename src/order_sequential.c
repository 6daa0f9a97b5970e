/* SPDX-License-Identifier: BSD-3-Clause */
/* torch's SequentialSampler, and what anybody reads who does not shuffle. Of several ranks
 * each takes [r::world] of the padded order, as DistributedSampler(shuffle=False) has it;
 * `take` has the other ways. */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"

struct state {
	uint32_t n, world;
	enum clair_take take;
	uint32_t *order; /* 0 … n-1, owned */
};

static void sequential_close(void *p)
{
	struct state *s = p;

	if (s)
		free(s->order);
	free(s);
}

static int sequential_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);
	bool drop_last = false;

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_bool(params->words, "drop_last", false, &drop_last, error);
	if (r == 0)
		r = clair_take_word(params->words,
				    drop_last ? CLAIR_TAKE_DROP : CLAIR_TAKE_PAD, &s->take,
				    error);
	if (r == 0) {
		s->order = malloc(sizeof *s->order * (s->n + 1ul));
		r = s->order ? 0 : -ENOMEM;
	}
	if (r < 0) {
		sequential_close(s);
		return r;
	}
	for (uint32_t i = 0; i < s->n; i++)
		s->order[i] = i;
	*out = s;
	return 0;
}

static int sequential_epoch(void *p, uint64_t epoch, uint32_t rank,
			    struct clair_indices *out)
{
	const struct state *s = p;

	(void)epoch;
	/* The batches of one process are another matter: nothing is dropped here. */
	if (s->world == 1)
		return clair_take_copy(s->order, s->n, out);
	return clair_take(s->take, s->order, s->n, s->world, rank, out);
}

static const struct clair_family_word words[] = {
	{ "drop_last", "0", "several ranks: 1: cut to a multiple of world, not padded" },
	{ "take", "pad", "a rank's part: all, stride, pad, drop, block, spread, block-pad" },
	{ NULL },
};

const struct clair_family clair_family_sequential = {
	.name = "sequential",
	.help = "in dataset order, rank r takes [r::world]",
	.versions = "",
	.words = words,
	.open = sequential_open,
	.epoch = sequential_epoch,
	.close = sequential_close,
};
