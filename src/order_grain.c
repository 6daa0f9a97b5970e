/* SPDX-License-Identifier: BSD-3-Clause */
/* Google Grain: IndexSampler under DataLoader, and MapDataset.shuffle. Its index shuffle
 * is no permutation for some lengths: that is part of the order. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "cxx_shuffle.h"
#include "numpy_random.h"
#include "order_take.h"

struct state {
	uint32_t n, world;
	bool shuffle, drop, reseed, backwards;
	uint64_t seed, epochs, window;
	bool map; /* MapDataset */
};

struct cipher {
	uint32_t keys[4], max, mask;
	unsigned width; /* of a half, in bits */
};

/* For indices in [0, MAX]. */
static void cipher_init(struct cipher *c, uint32_t seed, uint32_t max)
{
	unsigned bits = max > 1 ? 32 - (unsigned)__builtin_clz(max - 1) : 0;

	bits += bits % 2;
	c->width = bits > 16 ? bits / 2 : 8;
	c->mask = (1u << c->width) - 1;
	c->max = max;
	clair_cxx_seed_seq(&seed, 1, c->keys, 4);
}

static uint32_t rotate(const struct cipher *c, uint32_t x, unsigned by)
{
	return (x << by | x >> (c->width - by)) & c->mask;
}

static uint32_t round_of(const struct cipher *c, uint32_t x)
{
	return (rotate(c, x, 1) & rotate(c, x, 8)) ^ rotate(c, x, 2);
}

static uint32_t cipher_at(const struct cipher *c, uint32_t index)
{
	uint64_t v = index;

	if (c->max == 0)
		return 0;
	do {
		uint32_t l = (uint32_t)(v >> c->width) & c->mask, r = (uint32_t)v & c->mask;

		for (int i = 0; i < 4; i += 2) {
			l ^= round_of(c, r) ^ (c->keys[i] & c->mask);
			r ^= round_of(c, l) ^ (c->keys[i + 1] & c->mask);
		}
		v = (uint64_t)l << c->width | r;
	} while (v > c->max);
	return (uint32_t)v;
}

static int grain_words(struct state *s, const struct clair_words *words, char **error)
{
	int r = clair_words_u64(words, "seed", 0, &s->seed, error);

	if (r == 0)
		r = clair_words_bool(words, "shuffle", s->map, &s->shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "drop_last", false, &s->drop, error);
	if (r == 0)
		r = clair_words_u64(words, "epochs", 0, &s->epochs, error);
	if (r == 0 && s->map)
		r = clair_words_bool(words, "reseed", true, &s->reseed, error);
	if (r == 0 && s->map)
		r = clair_words_uint(words, "window", 0, UINT32_MAX, &s->window, error);
	if (r == 0 && s->map)
		r = clair_words_bool(words, "iter", false, &s->backwards, error);
	if (r == 0 && s->map && clair_words_get(words, "dataset_seed")) {
		/* a shuffle() without a seed behind ds.seed(): one hashed by its depth */
		struct clair_np_seed_sequence ss;
		uint64_t depth = 1;
		uint32_t key[3], hashed = 0;

		r = clair_words_u64(words, "dataset_seed", 0, &s->seed, error);
		if (r == 0)
			r = clair_words_uint(words, "depth", 1, UINT32_MAX, &depth, error);
		size_t k = clair_np_words(s->seed, key);
		key[k] = (uint32_t)depth;
		clair_np_seed_sequence(&ss, key, k + 1, NULL, 0);
		clair_np_seed_state(&ss, &hashed, 1);
		s->seed = hashed;
	}
	return r;
}

static int open_as(bool map, const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->map = map;
	int r = grain_words(s, params->words, error);
	if (r < 0) {
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

static int loader_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(false, params, out, error);
}

static int map_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(true, params, out, error);
}

/* Records of one shard in all, when num_epochs is given: DataLoader stops at the floor. */
static uint64_t loader_limit(const struct state *s, uint32_t rank)
{
	uint64_t each = s->drop && s->world > 1 ? s->n / s->world : 0, total = 0, sampled = 0;

	if (s->epochs == 0)
		return UINT64_MAX;
	total = each ? each * s->world * s->epochs : s->epochs * s->n;
	sampled = s->drop && s->world > 1 ? each * s->world * s->epochs : s->epochs * s->n;
	sampled = sampled > rank ? (sampled - rank - 1) / s->world + 1 : 0;
	return total / s->world < sampled ? total / s->world : sampled;
}

static int loader_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	uint32_t share = s->n / s->world, rest = s->drop ? 0 : s->n % s->world;
	uint32_t low = share * rank + (rank < rest ? rank : rest);
	uint32_t count = share + (rank < rest);
	uint64_t limit = loader_limit(s, rank), before = epoch * count;
	struct cipher c;
	int r = 0;

	if (before >= limit || count == 0)
		return 0;
	cipher_init(&c, (uint32_t)(s->seed + epoch), count - 1);
	for (uint32_t i = 0; i < count && before + i < limit && r == 0; i++)
		r = clair_indices_append(out, low + (s->shuffle ? cipher_at(&c, i) : i));
	return r;
}

/* Window W is shuffled with seed + W; the iterator gives it out from its end. */
static int windows(const struct state *s, uint64_t seed, uint32_t *order)
{
	for (uint64_t w = 0; w * s->window < s->n; w++) {
		uint64_t low = w * s->window, size = s->n - low;
		struct cipher c;

		if (!s->backwards || size > s->window)
			size = s->window;
		cipher_init(&c, (uint32_t)(seed + w), (uint32_t)size - 1);
		for (uint64_t i = 0; i < size && low + i < s->n; i++)
			order[low + (s->backwards ? size - 1 - i : i)] =
				(uint32_t)(low + cipher_at(&c, (uint32_t)i));
	}
	return 0;
}

static int map_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	uint64_t seed = s->seed + (s->reseed ? epoch : 0);
	autofree uint32_t *order = malloc(((size_t)s->n + 1) * sizeof *order);
	struct cipher c;

	if (!order)
		return -ENOMEM;
	if (s->n == 0)
		return 0;
	cipher_init(&c, (uint32_t)seed, s->n - 1);
	for (uint32_t i = 0; i < s->n && !s->window; i++)
		order[i] = s->shuffle ? cipher_at(&c, i) : i;
	if (s->window)
		windows(s, seed, order);
	return clair_take(CLAIR_TAKE_STRIDE, order, s->n, s->world, rank, out);
}

static const struct clair_family_word loader_words[] = {
	{ "seed", "0", "IndexSampler's seed" },
	{ "shuffle", "0", "IndexSampler's shuffle" },
	{ "drop_last", "0", "ShardOptions' drop_remainder" },
	{ "epochs", "0", "num_epochs, 0: None" },
	{ NULL },
};

const struct clair_family clair_family_grain = {
	.name = "grain",
	.help = "grain.DataLoader over an IndexSampler (rank = shard)",
	.versions = "grain 0.2.2 to 0.2.18",
	.words = loader_words,
	.open = loader_open,
	.epoch = loader_epoch,
	.close = free,
};

static const struct clair_family_word map_words[] = {
	{ "seed", "0", "shuffle(seed=…)" },
	{ "shuffle", "1", "0: in dataset order" },
	{ "reseed", "1", "repeat's reseed_each_epoch" },
	{ "window", "0", "WindowShuffleMapDataset's window, 0: the whole set" },
	{ "iter", "0", "1: WindowShuffleIterDataset" },
	{ "dataset_seed", "", "ds.seed()'s, for a shuffle() without one" },
	{ "depth", "1", "datasets between seed() and shuffle(), plus 1" },
	{ NULL },
};

const struct clair_family clair_family_grain_map = {
	.name = "grain-map",
	.help = "grain.MapDataset.shuffle(seed).repeat()[shard::shards]",
	.versions = "grain 0.2.18",
	.words = map_words,
	.open = map_open,
	.epoch = map_epoch,
	.close = free,
};
