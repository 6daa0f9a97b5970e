/* SPDX-License-Identifier: BSD-3-Clause */
/* Hugging Face datasets, streaming: IterableDataset.shuffle(seed, buffer_size) over
 * shards, split by node and by worker. What it does changed with 4.4, 4.6 and 5.1. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"

#define V4_4 4004000u
#define V4_6 4006000u
#define V5_1 5001000u

struct state {
	struct clair_groups groups; /* shards */
	uint32_t world, workers, version;
	uint64_t seed, buffer, max_shards, batch;
	bool shuffle;
};

static void stream_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	free(s);
}

static int stream_words(struct state *s, const struct clair_words *words, char **error)
{
	uint64_t workers = 0;
	int r = clair_version_word(words, "datasets", "5.2", &s->version, error);

	if (r == 0)
		r = clair_words_u64(words, "seed", 42, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(words, "buffer", 1000, UINT32_MAX, &s->buffer, error);
	if (r == 0)
		r = clair_words_uint(words, "max_shards", 10, UINT32_MAX, &s->max_shards, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_uint(words, "workers", 0, 4096, &workers, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &s->shuffle, error);
	if (r == 0 && ((s->buffer == 0 && s->shuffle) || s->batch == 0))
		r = clair_bad(error, "buffer, batch: at least 1");
	s->workers = (uint32_t)workers;
	return r;
}

static int stream_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = clair_groups_init(&s->groups, params, "shards", error);
	if (r == 0)
		r = stream_words(s, params->words, error);
	if (r < 0) {
		stream_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static void seed128(struct clair_pcg64 *g, unsigned __int128 seed)
{
	struct clair_np_seed_sequence ss;
	uint32_t words[4];
	size_t n = 0;

	do
		words[n++] = (uint32_t)seed;
	while (seed >>= 32);
	clair_np_seed_sequence(&ss, words, n, NULL, 0);
	clair_pcg64_seed_sequence(g, &ss);
}

static uint64_t int63(struct clair_pcg64 *g)
{
	return clair_pcg64_bounded(g, (1ull << 63) - 1);
}

/* The shards of all ranks in the epoch's order, and the seed of the buffer. */
static int shard_order(const struct state *s, uint64_t epoch, uint32_t *shards,
		       unsigned __int128 *seed)
{
	uint32_t n = s->groups.count;
	struct clair_pcg64 g;

	clair_iota(shards, n);
	*seed = s->seed;
	if (s->version < V4_6) {
		if (s->shuffle && epoch) {
			clair_pcg64_seed(&g, s->seed);
			*seed = (int63(&g) - epoch) & ((1ull << 63) - 1);
		}
		seed128(&g, *seed);
		if (s->shuffle)
			clair_pcg64_shuffle(&g, shards, n);
		return 0;
	}
	clair_pcg64_seed(&g, s->seed);
	if (s->shuffle)
		clair_pcg64_shuffle(&g, shards, n);
	if (epoch == 0)
		return 0;
	autofree uint32_t *again = malloc(((size_t)n + 1) * 2 * sizeof *again);
	if (!again)
		return -ENOMEM;
	clair_pcg64_seed(&g, epoch);
	clair_pcg64_permutation(&g, n, again);
	memcpy(again + n, shards, n * sizeof *shards);
	for (uint32_t i = 0; i < n; i++)
		shards[i] = again[n + again[i]];
	clair_pcg64_seed(&g, s->seed);
	*seed = int63(&g) - epoch;
	return 0;
}

/* Up to MAX shards are read at a time: contiguous groups, a row of each in turn. */
static int rows_of(const struct state *s, const uint32_t *shards, uint32_t n,
		   struct clair_indices *rows)
{
	const struct clair_groups *g = &s->groups;
	uint64_t open = s->max_shards < n ? s->max_shards : n;
	int r = 0;

	if (!s->shuffle || s->version < V5_1 || open < 2)
		open = 1;
	autofree struct clair_part *parts = calloc((size_t)open + 1, sizeof *parts);
	struct clair_indices flat = { 0 };
	if (!parts)
		return -ENOMEM;
	for (uint32_t k = 0, at = 0; k < open; k++) {
		uint32_t take = (uint32_t)(n / open + (k < n % open));
		size_t before = flat.count;

		for (uint32_t i = at; i < at + take; i++)
			for (uint32_t x = 0; x < g->size[shards[i]] && r == 0; x++)
				r = clair_indices_append(&flat, g->start[shards[i]] + x);
		at += take;
		parts[k].count = flat.count - before;
	}
	size_t used = 0;
	for (uint64_t k = 0; k < open; k++) {
		parts[k].items = flat.at + used;
		used += parts[k].count;
	}
	if (r == 0)
		r = clair_groups_interleave(parts, (size_t)open, 1, rows);
	clair_indices_finish(&flat);
	return r;
}

/* From 5.1 on: the full buffer is permuted, half of it leaves. */
static int buffer_half(struct clair_pcg64 *g, uint64_t size, uint32_t *rows, size_t n)
{
	autofree uint32_t *buffer = malloc((size_t)(size + 1) * 3 * sizeof *buffer);
	size_t count = 0, out = 0;

	if (!buffer)
		return -ENOMEM;
	uint32_t *order = buffer + size, *copy = order + size;
	for (size_t i = 0; i < n; i++) {
		buffer[count++] = rows[i];
		if (count < size)
			continue;
		size_t keep = size / 2, cut = count - keep;
		clair_pcg64_permutation(g, (uint32_t)count, order);
		memcpy(copy, buffer, count * sizeof *copy);
		for (size_t k = 0; k < cut; k++)
			rows[out++] = copy[order[k]];
		for (size_t k = 0; k < keep; k++)
			buffer[k] = copy[order[cut + k]];
		count = keep;
	}
	clair_pcg64_permutation(g, (uint32_t)count, order);
	for (size_t k = 0; k < count; k++)
		rows[out++] = buffer[order[k]];
	return 0;
}

/* Before: a random one leaves for each that comes; indices are drawn by the thousand. */
static int buffer_reservoir(struct clair_pcg64 *g, uint64_t size, uint32_t *rows, size_t n)
{
	autofree uint32_t *buffer = malloc((size_t)(size + 1) * sizeof *buffer);
	uint32_t drawn[1000];
	size_t count = 0, out = 0, next = 1000;

	if (!buffer)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (count < size) {
			buffer[count++] = rows[i];
			continue;
		}
		for (size_t k = 0; next == 1000 && k < 1000; k++)
			drawn[k] = (uint32_t)clair_pcg64_bounded(g, size - 1);
		next %= 1000;
		uint32_t k = drawn[next++];
		uint32_t row = rows[i];
		rows[out++] = buffer[k];
		buffer[k] = row;
	}
	clair_pcg64_shuffle(g, buffer, count);
	memcpy(rows + out, buffer, count * sizeof *rows);
	return 0;
}

static int worker_rows(const struct state *s, uint64_t epoch, uint32_t rank, uint32_t worker,
		       struct clair_indices *out)
{
	uint32_t n = s->groups.count, step = 1, kept = 0, first = 0, by = 1;
	autofree uint32_t *shards = malloc(((size_t)n + 1) * sizeof *shards);
	struct clair_indices rows = { 0 };
	unsigned __int128 seed = 0;
	struct clair_pcg64 g;

	if (!shards)
		return -ENOMEM;
	int r = shard_order(s, epoch, shards, &seed);
	if (n % s->world == 0) {
		first = rank;
		by = s->world;
	} else {
		step = s->world; /* every rank reads all and keeps its share */
	}
	first += worker * by;
	by *= s->workers ? s->workers : 1;
	for (uint64_t i = first; i < n; i += by)
		shards[kept++] = shards[i];
	if (s->workers && s->shuffle && s->version >= V4_4) {
		seed128(&g, seed);
		seed = s->version < V4_6 ? g.state + worker :
					   (unsigned __int128)(int63(&g) - worker);
	}
	if (r == 0)
		r = rows_of(s, shards, kept, &rows);
	seed128(&g, seed);
	if (r == 0 && s->shuffle)
		r = (s->version >= V5_1 ? buffer_half : buffer_reservoir)(&g, s->buffer, rows.at,
									  rows.count);
	if (r == 0 && rows.count)
		r = clair_take(CLAIR_TAKE_STRIDE, rows.at, rows.count, step,
			       step > 1 ? rank : 0, out);
	clair_indices_finish(&rows);
	return r;
}

static int stream_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	uint32_t workers = s->workers ? s->workers : 1;
	autofree struct clair_part *parts = calloc(workers, sizeof *parts);
	struct clair_indices all = { 0 }, merged = { 0 };
	int r = parts ? 0 : -ENOMEM;

	for (uint32_t w = 0; w < workers && r == 0; w++) {
		size_t before = all.count;

		r = worker_rows(s, epoch, rank, w, &all);
		parts[w].count = all.count - before;
	}
	size_t used = 0;
	for (uint32_t w = 0; w < workers && r == 0; w++) {
		parts[w].items = all.at + used;
		used += parts[w].count;
	}
	if (r == 0)
		r = clair_groups_interleave(parts, workers, (size_t)s->batch, &merged);
	if (r == 0 && merged.count)
		r = clair_groups_emit(&s->groups, merged.at, merged.count, out);
	clair_indices_finish(&all);
	clair_indices_finish(&merged);
	return r;
}

static const struct clair_family_word words[] = {
	{ "seed", "42", "shuffle(seed=…)" },
	{ "shards", "1", "rows a shard: a number, or a file with one a line" },
	{ "buffer", "1000", "buffer_size" },
	{ "max_shards", "10", "max_buffer_input_shards (5.1 and later)" },
	{ "datasets", "5.2", "version of datasets" },
	{ NULL },
};

const struct clair_family clair_family_hf_stream = {
	.name = "hf-stream",
	.help = "Hugging Face datasets, streaming: shuffle(seed, buffer_size).set_epoch(e)",
	.versions = "datasets 2.21 to 5.2 (not 5.0)",
	.words = words,
	.open = stream_open,
	.epoch = stream_epoch,
	.close = stream_close,
};
