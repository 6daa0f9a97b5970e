/* SPDX-License-Identifier: BSD-3-Clause */
/* tf.data.Dataset.shuffle and list_files. */
#include "order_tf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "order_take.h"
#include "python_random.h"

#define MAX31 2147483647u

uint32_t clair_tf_op_seed(int64_t global, uint64_t nth)
{
	struct clair_mt mt;
	uint32_t v = 0;

	clair_py_seed(&mt, global < 0 ? -(uint64_t)global : (uint64_t)global);
	for (uint64_t i = 0; i <= nth; i++)
		v = (uint32_t)clair_py_randbelow(&mt, 1ull << 31);
	return v;
}

static uint64_t modulo31(int64_t v)
{
	int64_t m = v % (int64_t)MAX31;

	return (uint64_t)(m < 0 ? m + MAX31 : m);
}

void clair_tf_pair(bool has_global, int64_t global, int64_t op, uint64_t pair[2])
{
	pair[0] = has_global ? modulo31(global) : 87654321;
	pair[1] = modulo31(op);
	if (pair[0] == 0 && pair[1] == 0)
		pair[1] = MAX31;
}

void clair_tf_iterator_pair(const uint64_t pair[2], bool reshuffle, uint64_t iterator,
			    uint64_t out[2])
{
	struct clair_philox g;

	out[0] = pair[0];
	out[1] = pair[1];
	if (!reshuffle)
		return;
	clair_philox_seed(&g, pair[0], pair[1]);
	clair_philox_skip(&g, 2 * iterator);
	out[0] = clair_philox_u32(&g);
	out[1] = clair_philox_u32(&g);
}

/* A ring of BUFFER slots: the picked one is taken by the oldest. */
int clair_tf_shuffle(const uint64_t pair[2], uint64_t buffer, const uint32_t *items,
		     size_t n, uint32_t *out)
{
	uint64_t room = buffer < n ? buffer : n, start = 0, end = 0;
	autofree uint32_t *ring = malloc((size_t)(room + 1) * sizeof *ring);
	struct clair_philox g;

	if (!ring)
		return -ENOMEM;
	clair_philox_seed(&g, pair[0], pair[1]);
	for (size_t k = 0; k < n; k++) {
		for (; end < n && end - start < room; end++)
			ring[end % room] = items[end];
		uint64_t i = (start + clair_philox_u32(&g) % (uint32_t)(end - start)) % room;
		out[k] = ring[i];
		ring[i] = ring[start % room];
		start++;
	}
	return 0;
}

struct state {
	uint32_t n, world;
	uint64_t pair[2], buffer, repeat, step, skip;
	bool reshuffle, shard_first, repeat_first;
	/* Before and after the shuffle; of epoch AT for all ranks if MADE. */
	struct clair_indices items, order;
	uint64_t at;
	bool made;
};

static void tf_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_indices_finish(&s->items);
	clair_indices_finish(&s->order);
	free(s);
}

static int tf_seeds(struct state *s, const struct clair_words *words, char **error)
{
	bool has_global = clair_words_get(words, "global") != NULL;
	bool has_op = clair_words_get(words, "seed") != NULL;
	uint64_t global = 0, op = 0, nth = 0;
	int r = clair_words_u64(words, "global", 0, &global, error);

	if (r == 0)
		r = clair_words_u64(words, "seed", 0, &op, error);
	if (r == 0)
		r = clair_words_u64(words, "nth", 0, &nth, error);
	if (r == 0 && has_global && !has_op)
		op = clair_tf_op_seed((int64_t)global, nth);
	if (r == 0)
		clair_tf_pair(has_global, (int64_t)global, (int64_t)op, s->pair);
	return r;
}

static int tf_words(struct state *s, const struct clair_words *words, char **error)
{
	static const char *const before_after[] = { "after", "before", NULL };
	static const char *const layouts[] = { "shuffle.repeat", "repeat.shuffle", NULL };
	unsigned which = 0;
	int r = tf_seeds(s, words, error);

	if (r == 0)
		r = clair_words_u64(words, "buffer", s->n, &s->buffer, error);
	if (r == 0)
		r = clair_words_uint(words, "repeat", 1, 1000000, &s->repeat, error);
	if (r == 0)
		r = clair_words_bool(words, "reshuffle", true, &s->reshuffle, error);
	if (r == 0)
		r = clair_words_uint(words, "step", 1, UINT32_MAX, &s->step, error);
	if (r == 0)
		r = clair_words_u64(words, "skip", 0, &s->skip, error);
	if (r == 0)
		r = clair_name_word(words, "shard", before_after, 0, &which, error);
	s->shard_first = which == 1;
	if (r == 0)
		r = clair_name_word(words, "layout", layouts, 0, &which, error);
	s->repeat_first = which == 1;
	if (r == 0 && s->n && (s->buffer == 0 || s->repeat == 0 || s->step == 0))
		r = clair_bad(error, "buffer, repeat and step are at least 1");
	return r;
}

static int tf_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = tf_words(s, params->words, error);
	if (r < 0) {
		tf_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* One iterator's elements (repeat(k) behind the shuffle makes k iterators). */
static int tf_iterator(struct state *s, uint64_t iterator)
{
	uint64_t pair[2];
	uint32_t *at = clair_take_room(&s->order, s->items.count);

	if (!at)
		return -ENOMEM;
	clair_tf_iterator_pair(s->pair, s->reshuffle, iterator, pair);
	return clair_tf_shuffle(pair, s->buffer, s->items.at, s->items.count, at);
}

/* ORDER becomes that of EPOCH, of all ranks when the shard comes after the shuffle. */
static int tf_make(struct state *s, uint64_t epoch, uint32_t rank)
{
	uint64_t iterators = s->repeat_first ? 1 : s->repeat;
	uint64_t first = s->skip + epoch * s->step * iterators;
	uint32_t from = s->shard_first ? rank : 0, by = s->shard_first ? s->world : 1;
	int r = 0;

	s->made = false;
	s->items.count = s->order.count = 0;
	for (uint64_t k = 0; k < (s->repeat_first ? s->repeat : 1); k++)
		for (uint64_t i = from; i < s->n && r == 0; i += by)
			r = clair_indices_append(&s->items, (uint32_t)i);
	for (uint64_t k = 0; k < iterators && r == 0; k++)
		r = tf_iterator(s, first + k);
	s->at = epoch;
	s->made = r == 0 && !s->shard_first;
	return r;
}

static int tf_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	int r = s->made && s->at == epoch ? 0 : tf_make(s, epoch, rank);

	if (r < 0)
		return r;
	return clair_take(s->shard_first ? CLAIR_TAKE_ALL : CLAIR_TAKE_STRIDE, s->order.at,
			  s->order.count, s->world, rank, out);
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "seed= of shuffle() or list_files()" },
	{ "global", "", "tf.random.set_seed()'s, when it was called" },
	{ "nth", "0", "without seed: the op is the n-th one that draws a seed" },
	{ "buffer", "", "buffer_size (all of them, as list_files has it)" },
	{ "reshuffle", "1", "reshuffle_each_iteration" },
	{ "repeat", "1", "repeat(k)" },
	{ "layout", "shuffle.repeat", "or repeat.shuffle" },
	{ "shard", "after", "shard(world, rank) stands after or before the shuffle" },
	{ "step", "1", "iterators made an epoch (2: Keras' fit from 3.7 on)" },
	{ "skip", "0", "iterators made before the first epoch" },
	{ NULL },
};

const struct clair_family clair_family_tf_shuffle = {
	.name = "tf-shuffle",
	.help = "tf.data.Dataset.shuffle, list_files(shuffle=True)",
	.versions = "TensorFlow 2.x",
	.words = words,
	.open = tf_open,
	.epoch = tf_epoch,
	.close = tf_close,
};
