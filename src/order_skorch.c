/* SPDX-License-Identifier: BSD-3-Clause */
/* skorch's fit: the first of five unshuffled folds is held out; an epoch reads the
 * rest, then what is held out. */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"
#include "torch_draw.h"

struct state {
	uint32_t n, held;
	bool shuffle;
	uint64_t skip, stride;
	struct clair_torch_walk walk;
};

static int skorch_open(const struct clair_order_params *params, void **out,
                       char **error)
{
	struct state *s = calloc(1, sizeof *s);
	uint64_t seed = 0, folds = 5;

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	int r = clair_words_u64(params->words, "seed", 0, &seed, error);
	if (r == 0)
		r = clair_words_bool(params->words, "shuffle", false, &s->shuffle,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "folds", 5, UINT32_MAX, &folds,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "stride", folds ? 6 : 4, UINT32_MAX,
		                     &s->stride, error);
	if (r == 0)
		r = clair_torch_skip_word(params->words, &s->skip, error);
	if (r < 0) {
		free(s);
		return r;
	}
	s->held = folds ? (uint32_t)((s->n + folds - 1) / folds) : 0;
	clair_torch_walk_init(&s->walk, seed);
	*out = s;
	return 0;
}

static int skorch_epoch(void *p, uint64_t epoch, uint32_t rank,
                        struct clair_indices *out)
{
	struct state *s = p;
	struct clair_torch_walk own;
	uint32_t train = s->n - s->held;
	uint32_t *at = clair_take_room(out, s->n);

	(void)rank;
	if (!at)
		return -ENOMEM;
	for (uint32_t i = 0; i < train; i++)
		at[i] = i;
	if (s->shuffle) {
		clair_torch_walk_init(
		    &own,
		    clair_torch_walk_u32(&s->walk, s->skip + 3 + s->stride * epoch));
		clair_torch_walk_perm(&own, 0, train, at);
	}
	for (uint32_t i = 0; i < train; i++)
		at[i] += s->held;
	for (uint32_t i = 0; i < s->held; i++)
		at[train + i] = i;
	return 0;
}

static const struct clair_family_word words[] = {
    {"seed", "0", "of torch.manual_seed, called after initialize()"},
    {"shuffle", "0", "1: iterator_train__shuffle=True"},
    {"folds", "5", "ValidSplit's; 0: train_split=None"},
    {"stride", "", "u32 of the default generator an epoch"},
    CLAIR_TORCH_SKIP_WORDS,
    {NULL},
};

const struct clair_family clair_family_skorch = {
    .name = "skorch",
    .help = "skorch's NeuralNet.fit; unstratified",
    .versions = "",
    .words = words,
    .open = skorch_open,
    .epoch = skorch_epoch,
    .close = free,
};
