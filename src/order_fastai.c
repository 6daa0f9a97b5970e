/* SPDX-License-Identifier: BSD-3-Clause */
/* fastai's DataLoader(shuffle=True): each loader made takes one number of Python's global
 * generator; each epoch seeds a new generator from the last epoch's. */
#include <errno.h>
#include <stdlib.h>

#include "order_take.h"
#include "python_random.h"

struct state {
	uint32_t n, world;
	enum clair_take take;
	uint64_t seed, loader, skip, batch, drawn;
	bool drop_last;
	uint64_t next; /* the epoch that MT stands before, 0: anew */
	struct clair_mt mt;
	uint32_t *order;
};

static void fastai_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->order);
	free(s);
}

static int fastai_words(struct state *s, const struct clair_words *words, char **error)
{
	int r = clair_words_u64(words, "seed", 0, &s->seed, error);

	if (r == 0)
		r = clair_words_uint(words, "loader", 0, 1000000, &s->loader, error);
	if (r == 0)
		r = clair_words_uint(words, "skip", 0, 1000000, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_bool(words, "drop_last", false, &s->drop_last, error);
	if (r == 0)
		r = clair_take_word(words, CLAIR_TAKE_BLOCK_PAD, &s->take, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	return r;
}

static int fastai_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->order = malloc(((size_t)s->n + 1) * sizeof *s->order);
	int r = s->order ? fastai_words(s, params->words, error) : -ENOMEM;
	if (r < 0) {
		fastai_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static void reseed(struct clair_mt *mt)
{
	clair_py_seed(mt, clair_py_randbelow(mt, 1ull << 32));
}

static int one_epoch(struct state *s)
{
	reseed(&s->mt);
	return clair_py_sample(&s->mt, s->n, s->n, s->order);
}

static int fastai_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	int r = 0;

	if (s->n == 0)
		return 0;
	if (s->next == 0 || s->next > epoch + 1) {
		clair_py_seed(&s->mt, s->seed);
		for (uint64_t i = 0; i < s->loader; i++)
			clair_py_randbelow(&s->mt, 1ull << 32);
		reseed(&s->mt);
		for (uint64_t i = 0; i < s->skip && r == 0; i++)
			r = one_epoch(s);
		s->next = 0;
	}
	for (; s->next <= epoch && r == 0; s->next++)
		r = one_epoch(s);
	if (r < 0)
		return r;
	return clair_take(s->take, s->order, s->drop_last ? s->n - s->n % s->batch : s->n,
			  s->world, rank, out);
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "random.seed()'s" },
	{ "loader", "0", "DataLoaders made before this one" },
	{ "skip", "0", "epochs and one_batch() calls before the first epoch" },
	{ "take", "block-pad", "a rank's part: all, stride, pad, drop, block, block-pad" },
	{ NULL },
};

const struct clair_family clair_family_fastai = {
	.name = "fastai",
	.help = "fastai.data.load.DataLoader(shuffle=True)",
	.versions = "fastai 2.8",
	.words = words,
	.open = fastai_open,
	.epoch = fastai_epoch,
	.close = fastai_close,
};
