/* SPDX-License-Identifier: BSD-3-Clause */
/* FFCV's QUASI_RANDOM (samples in pages) and kohya's sd-scripts (images in buckets). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"
#include "python_random.h"
#include "torch_perm.h"

/* ---- FFCV, one process */

struct quasi {
	struct clair_groups groups; /* pages */
	uint64_t seed, batch;
};

static void quasi_close(void *p)
{
	struct quasi *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	free(s);
}

static int quasi_open(const struct clair_order_params *params, void **out, char **error)
{
	struct quasi *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	int r = clair_groups_init(&s->groups, params, "pages", error);
	if (r == 0)
		r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", 1, UINT32_MAX / 2, &s->batch, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	if (r < 0) {
		quasi_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* Numba's two generators are one algorithm: its np.random takes the low bits of a word,
 * its random the high ones. */
static uint32_t numba_low(struct clair_mt *mt, uint32_t n)
{
	uint32_t mask = n > 1 ? UINT32_MAX >> __builtin_clz((n - 1) | 1) : 1, v = 0;

	do
		v = clair_mt_u32(mt) & mask;
	while (v >= n);
	return v;
}

static void swap(uint32_t *items, size_t i, size_t j)
{
	uint32_t t = items[i];

	items[i] = items[j];
	items[j] = t;
}

/* Pages come in one by one; the next sample is of a random one of those that are open. */
static int quasi_walk(const struct quasi *s, struct clair_mt *np, const uint32_t *order,
		      const uint32_t *samples, uint32_t *out)
{
	const struct clair_groups *g = &s->groups;
	autofree uint32_t *used = calloc((size_t)g->count + 1, sizeof *used);
	autofree uint32_t *open = malloc(((size_t)g->count + 1) * sizeof *open);
	uint32_t count = 0, next = 0;

	if (!used || !open)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->total; i++) {
		for (; next < g->count && count < 2 * s->batch; next++)
			if (g->size[order[next]])
				open[count++] = order[next];
		uint32_t k = numba_low(np, count), page = open[k];

		out[i] = samples[g->start[page] + used[page]++];
		if (used[page] >= g->size[page]) {
			count--;
			memmove(open + k, open + k + 1, (count - k) * sizeof *open);
		}
	}
	return 0;
}

static int quasi_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct quasi *s = p;
	const struct clair_groups *g = &s->groups;
	size_t total = g->total;
	autofree uint32_t *samples = malloc((total + 1) * 2 * sizeof *samples);
	autofree uint32_t *order = malloc(((size_t)g->count + 1) * sizeof *order);
	struct clair_mt py, np;

	(void)rank;
	if (!samples || !order)
		return -ENOMEM;
	clair_mt_seed(&py, (uint32_t)(s->seed * 912300 + epoch));
	np = py;
	clair_iota(samples, total);
	for (uint32_t k = 0; k < g->count; k++)
		clair_py_shuffle(&py, samples + g->start[k], g->size[k]);
	clair_iota(order, g->count);
	for (size_t i = g->count; i-- > 1;)
		swap(order, i, numba_low(&np, (uint32_t)i + 1));
	int r = quasi_walk(s, &np, order, samples, samples + total);
	return r < 0 ? r : clair_groups_emit(g, samples + total, total, out);
}

static const struct clair_family_word quasi_words[] = {
	{ "seed", "0", "the loader's seed" },
	{ "pages", "1", "samples a page: a number, or a file with one a line" },
	{ "batch", "1", "batch_size" },
	{ NULL },
};

const struct clair_family clair_family_ffcv_quasi = {
	.name = "ffcv-quasi",
	.help = "ffcv OrderOption.QUASI_RANDOM, one process",
	.versions = "",
	.words = quasi_words,
	.open = quasi_open,
	.epoch = quasi_epoch,
	.close = quasi_close,
};

/* ---- kohya: batches of buckets, shuffled on and on; the loader shuffles their numbers */

struct kohya_state {
	uint32_t *pairs, *images; /* batch numbers; images, bucket by bucket */
};

struct kohya {
	struct clair_groups groups; /* buckets */
	uint32_t pairs, workers;
	uint64_t seed, torch_seed, skip, batch, at; /* AT: what NOW is of, UINT64_MAX: none */
	bool persistent;
	uint32_t *bucket, *first; /* of a batch: its bucket, its first image in there */
	struct kohya_state start, before, now;
};

static void kohya_close(void *p)
{
	struct kohya *s = p;

	if (!s)
		return;
	struct kohya_state *all[] = { &s->start, &s->before, &s->now };
	for (int i = 0; i < 3; i++) {
		free(all[i]->pairs);
		free(all[i]->images);
	}
	free(s->bucket);
	free(s->first);
	clair_groups_finish(&s->groups);
	free(s);
}

static int kohya_words(struct kohya *s, const struct clair_words *words, char **error)
{
	uint64_t workers = 0;
	int r = clair_words_u64(words, "seed", 42, &s->seed, error);

	if (r == 0)
		r = clair_words_u64(words, "torch_seed", 0, &s->torch_seed, error);
	if (r == 0)
		r = clair_words_u64(words, "skip", 0, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_uint(words, "workers", 0, 4096, &workers, error);
	if (r == 0)
		r = clair_words_bool(words, "persistent", false, &s->persistent, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	s->workers = (uint32_t)workers;
	return r;
}

static int kohya_tables(struct kohya *s)
{
	struct kohya_state *all[] = { &s->start, &s->before, &s->now };
	size_t room = s->groups.total + (size_t)1;

	s->bucket = malloc(room * sizeof *s->bucket);
	s->first = malloc(room * sizeof *s->first);
	for (int i = 0; i < 3; i++) {
		all[i]->pairs = malloc(room * sizeof(uint32_t));
		all[i]->images = malloc(room * sizeof(uint32_t));
		if (!all[i]->pairs || !all[i]->images)
			return -ENOMEM;
	}
	if (!s->bucket || !s->first)
		return -ENOMEM;
	for (uint32_t k = 0; k < s->groups.count; k++)
		for (uint64_t i = 0; i < s->groups.size[k]; i += s->batch) {
			s->bucket[s->pairs] = k;
			s->first[s->pairs++] = (uint32_t)i;
		}
	return 0;
}

static int kohya_open(const struct clair_order_params *params, void **out, char **error)
{
	struct kohya *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->at = UINT64_MAX;
	int r = clair_groups_init(&s->groups, params, "buckets", error);
	if (r == 0)
		r = kohya_words(s, params->words, error);
	if (r == 0)
		r = kohya_tables(s);
	if (r < 0) {
		kohya_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static void kohya_copy(const struct kohya *s, struct kohya_state *to,
		       const struct kohya_state *from)
{
	memcpy(to->pairs, from->pairs, s->pairs * sizeof *to->pairs);
	memcpy(to->images, from->images, s->groups.total * sizeof *to->images);
}

static void kohya_step(struct kohya *s, uint64_t number)
{
	struct clair_mt mt;

	clair_py_seed(&mt, s->seed + number);
	clair_py_shuffle(&mt, s->now.pairs, s->pairs);
	for (uint32_t k = 0; k < s->groups.count; k++)
		clair_py_shuffle(&mt, s->now.images + s->groups.start[k], s->groups.size[k]);
	s->at = number;
}

/* NOW becomes the state that epoch number WANTED (from 1) is told, BEFORE the one of the
 * epoch before, START the one that new workers have. */
static void kohya_stand(struct kohya *s, uint64_t wanted)
{
	if (s->at == UINT64_MAX || s->at > wanted) {
		clair_iota(s->now.pairs, s->pairs);
		clair_iota(s->now.images, s->groups.total);
		kohya_step(s, 0);
		kohya_copy(s, &s->start, &s->now);
	}
	while (s->at < wanted) {
		kohya_copy(s, &s->before, &s->now);
		kohya_step(s, s->at + 1);
	}
}

static int kohya_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct kohya *s = p;
	autofree uint32_t *order = malloc(((size_t)s->pairs + 1) * sizeof *order);
	struct clair_indices images = { 0 };
	struct clair_mt mt;
	uint32_t lag = s->workers ? s->workers : 1;
	int r = 0;

	(void)rank;
	if (!order)
		return -ENOMEM;
	kohya_stand(s, epoch + 1);
	clair_torch_seed(&mt, s->torch_seed);
	clair_mt_skip(&mt, s->skip + (s->persistent ? 2 + 2 * epoch : 2 + 4 * epoch) + 1);
	clair_torch_seed(&mt, clair_mt_u32(&mt));
	clair_torch_randperm(&mt, s->pairs, order);
	for (uint32_t k = 0; k < s->pairs && r == 0; k++) {
		/* the first fetch of a worker comes before it hears of the epoch */
		const struct kohya_state *old = s->persistent || !s->workers ? &s->before :
									       &s->start;
		const struct kohya_state *st = k >= lag ? &s->now : old;
		uint32_t pair = st->pairs[order[k]], b = s->bucket[pair];
		uint64_t left = s->groups.size[b] - s->first[pair];

		r = clair_take_copy(st->images + s->groups.start[b] + s->first[pair],
				    (size_t)(left < s->batch ? left : s->batch), &images);
	}
	if (r == 0 && images.count)
		r = clair_groups_emit(&s->groups, images.at, images.count, out);
	clair_indices_finish(&images);
	return r;
}

static const struct clair_family_word kohya_family_words[] = {
	{ "seed", "42", "the dataset's seed" },
	{ "buckets", "1", "images a bucket: a number, or a file with one a line" },
	{ "batch", "1", "train_batch_size" },
	{ "torch_seed", "0", "torch.manual_seed()'s" },
	{ "skip", "0", "u32 drawn from torch's default generator before" },
	{ "persistent", "0", "persistent_data_loader_workers" },
	{ NULL },
};

const struct clair_family clair_family_kohya = {
	.name = "kohya",
	.help = "kohya's sd-scripts: batches of aspect-ratio buckets, one process",
	.versions = "",
	.words = kohya_family_words,
	.open = kohya_open,
	.epoch = kohya_epoch,
	.close = kohya_close,
};
