/* SPDX-License-Identifier: BSD-3-Clause */
/* LitData's StreamingDataset under StreamingDataLoader. Its shuffle depends on the file
 * system's type: FullShuffle on FUSE and local disks, WindowShuffle on NFS, Lustre, …. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"

struct state {
	struct clair_groups groups; /* chunks */
	uint32_t world, nodes, workers;
	uint64_t seed, batch, item_window, window;
	bool shuffle, drop, windowed;
};

/* Items [low, high) of a chunk, read by a worker (counted over all ranks). */
struct piece {
	uint32_t worker, chunk, low, high;
};

struct pieces {
	struct piece *at;
	size_t count;
};

static void litdata_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	free(s);
}

static int litdata_words(struct state *s, const struct clair_words *words, char **error)
{
	static const char *const kinds[] = { "full", "window", NULL };
	uint64_t nodes = 1, workers = 0;
	unsigned kind = 0;
	int r = clair_words_uint(words, "seed", 42, UINT32_MAX, &s->seed, error);

	if (r == 0)
		r = clair_words_bool(words, "shuffle", false, &s->shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "drop_last", s->world > 1, &s->drop, error);
	if (r == 0)
		r = clair_name_word(words, "kind", kinds, 0, &kind, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_uint(words, "workers", 0, 4096, &workers, error);
	if (r == 0)
		r = clair_words_uint(words, "nodes", 1, s->world, &nodes, error);
	if (r == 0)
		r = clair_words_uint(words, "item_window", 256, UINT32_MAX, &s->item_window,
				     error);
	if (r == 0)
		r = clair_words_uint(words, "window", 16, UINT32_MAX, &s->window, error);
	if (r == 0 && (s->batch == 0 || nodes == 0 || s->world % nodes))
		r = clair_bad(error, "batch, nodes: at least 1, and nodes divides world");
	s->windowed = kind == 1;
	s->nodes = (uint32_t)nodes;
	s->workers = workers ? (uint32_t)workers : 1;
	return r;
}

static int litdata_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = clair_groups_init(&s->groups, params, "chunks", error);
	if (r == 0)
		r = litdata_words(s, params->words, error);
	if (r < 0) {
		litdata_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static struct piece whole_chunk(const struct state *s, uint32_t worker, uint32_t chunk)
{
	uint32_t low = s->groups.start[chunk];

	return (struct piece){ worker, chunk, low, low + s->groups.size[chunk] };
}

/* Whole batches for the WORLD * workers workers from number FIRST on; a chunk is cut where
 * a worker has enough. */
static int assign(const struct state *s, const uint32_t *order, size_t n, uint32_t world,
		  uint32_t first, struct pieces *to)
{
	uint64_t total = 0, given = 0, each = 0;
	size_t all = (size_t)world * s->workers, k = 0;
	autofree uint64_t *quota = malloc(all * sizeof *quota);

	if (!quota)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		total += s->groups.size[order[i]];
	each = total / s->batch / world;
	for (size_t w = 0; w < all; w++) {
		quota[w] = s->batch * (each / s->workers + (w % s->workers < each % s->workers));
		given += quota[w];
	}
	if (!s->drop)
		quota[all - s->workers + each % s->workers] += total - given;
	for (size_t i = 0; i < n; i++) {
		struct piece rest = whole_chunk(s, 0, order[i]);

		while (rest.low < rest.high && k < all) {
			uint64_t m = rest.high - rest.low;

			if (quota[k] == 0) {
				k++;
				continue;
			}
			m = m < quota[k] ? m : quota[k];
			to->at[to->count++] = (struct piece){ first + (uint32_t)k, rest.chunk,
							      rest.low,
							      rest.low + (uint32_t)m };
			quota[k] -= m;
			rest.low += (uint32_t)m;
		}
	}
	return 0;
}

/* Every worker that has anything is cut to the whole batches of the smallest one. */
static void cut_to_smallest(const struct state *s, struct pieces *p)
{
	uint64_t least = UINT64_MAX, have = 0, left = 0;
	size_t kept = 0;

	for (size_t i = 0; i < p->count; i++) {
		have += p->at[i].high - p->at[i].low;
		if (i + 1 == p->count || p->at[i + 1].worker != p->at[i].worker) {
			least = have && have < least ? have : least;
			have = 0;
		}
	}
	for (size_t i = 0; i < p->count; i++) {
		struct piece x = p->at[i];

		if (i == 0 || p->at[i - 1].worker != x.worker)
			left = least / s->batch * s->batch;
		uint64_t m = x.high - x.low < left ? x.high - x.low : left;
		left -= m;
		x.high = x.low + (uint32_t)m;
		p->at[i].high = x.high;
	}
	for (size_t i = 0; i < p->count; i++)
		if (p->at[i].high > p->at[i].low)
			p->at[kept++] = p->at[i];
	p->count = kept;
}

/* WindowShuffle: contiguous stripes of whole chunks, then a shuffle within a window. */
static int stripes(const struct state *s, uint64_t epoch, struct pieces *to)
{
	uint32_t workers = s->world * s->workers, k = 0;
	uint64_t before = 0;

	for (uint32_t c = 0; c < s->groups.count; c++) {
		double middle = (double)before + s->groups.size[c] / 2.0;

		while (k + 1 < workers && to->count && to->at[to->count - 1].worker == k &&
		       middle > (double)((uint64_t)(k + 1) * s->groups.total) / workers)
			k++;
		to->at[to->count++] = whole_chunk(s, k, c);
		before += s->groups.size[c];
	}
	if (s->drop)
		cut_to_smallest(s, to);
	for (size_t i = 0, end = 0; i < to->count; i = end) {
		struct clair_mt mt;
		uint32_t key[3] = { (uint32_t)s->seed, (uint32_t)epoch, to->at[i].worker };

		for (end = i; end < to->count && to->at[end].worker == to->at[i].worker; end++)
			;
		clair_mt_seed_array(&mt, key, 3);
		for (size_t x = 0; s->window > 1 && x + 1 < end - i; x++) {
			uint64_t high = x + s->window < end - i ? x + s->window : end - i;
			size_t j = clair_np_randint(&mt, (uint32_t)x, high);
			struct piece t = to->at[i + x];

			to->at[i + x] = to->at[i + j];
			to->at[i + j] = t;
		}
	}
	return 0;
}

/* Later epochs of several nodes: each node shuffles the chunks that it had in epoch 1. */
static int within_nodes(const struct state *s, uint64_t epoch, const struct pieces *first,
			struct pieces *to)
{
	uint32_t ranks = s->world / s->nodes, workers = ranks * s->workers;
	autofree uint32_t *mine = malloc(((size_t)s->groups.count + 1) * sizeof *mine);
	autofree uint8_t *seen = malloc((size_t)s->groups.count + 1);
	int r = mine && seen ? 0 : -ENOMEM;

	for (uint32_t node = 0; node < s->nodes && r == 0; node++) {
		uint32_t key[3] = { (uint32_t)s->seed, (uint32_t)epoch, node };
		struct clair_mt mt;
		size_t n = 0;

		memset(seen, 0, s->groups.count);
		for (size_t i = 0; i < first->count; i++) {
			uint32_t c = first->at[i].chunk;

			if (first->at[i].worker / workers == node && !seen[c]) {
				seen[c] = 1;
				mine[n++] = c;
			}
		}
		clair_mt_seed_array(&mt, key, 3);
		clair_np_shuffle(&mt, mine, n);
		r = assign(s, mine, n, ranks, node * workers, to);
	}
	return r;
}

static int full(const struct state *s, uint64_t epoch, struct pieces *to)
{
	uint32_t n = s->groups.count;
	autofree uint32_t *order = malloc(((size_t)n + 1) * sizeof *order);
	uint32_t key[2] = { (uint32_t)s->seed, s->nodes > 1 ? 1 : (uint32_t)epoch };
	struct clair_mt mt;

	if (!order)
		return -ENOMEM;
	clair_mt_seed_array(&mt, key, 2);
	if (s->shuffle)
		clair_np_permutation(&mt, n, order);
	else
		clair_iota(order, n);
	int r = assign(s, order, n, s->world, 0, to);
	if (r < 0 || !s->shuffle || s->nodes == 1 || epoch == 1)
		return r;
	struct pieces first = *to;
	autofree struct piece *copy = malloc((first.count + 1) * sizeof *copy);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, to->at, first.count * sizeof *copy);
	first.at = copy;
	to->count = 0;
	return within_nodes(s, epoch, &first, to);
}

/* A piece's items: windows are shuffled, then the windows among each other. */
static int items_of(const struct state *s, uint64_t epoch, const struct piece *p,
		    struct clair_indices *out)
{
	uint32_t n = p->high - p->low;
	uint32_t key[4] = { (uint32_t)s->seed, s->groups.count, (uint32_t)epoch, p->chunk };
	uint32_t *at = clair_take_room(out, n);
	struct clair_mt mt;

	if (!at)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		at[i] = p->low + i;
	if (!s->shuffle || n < 2)
		return 0;
	clair_mt_seed_array(&mt, key, 4);
	if (s->item_window <= 1) {
		clair_np_shuffle(&mt, at, n);
		return 0;
	}
	uint32_t window = (uint32_t)s->item_window, blocks = (n - 1) / window + 1, k = 0;
	autofree uint32_t *order = malloc(((size_t)n + blocks) * sizeof *order);
	if (!order)
		return -ENOMEM;
	uint32_t *copy = order + blocks;
	for (uint32_t i = 0; i < n; i += window)
		clair_np_shuffle(&mt, at + i, n - i < window ? n - i : window);
	clair_np_permutation(&mt, blocks, order);
	memcpy(copy, at, n * sizeof *copy);
	for (uint32_t b = 0; b < blocks; b++)
		for (uint32_t i = order[b] * window; i < n && i < (order[b] + 1) * window; i++)
			at[k++] = copy[i];
	return 0;
}

static int litdata_epoch(void *p, uint64_t number, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	uint64_t epoch = number + 1; /* LitData counts from 1 */
	size_t room = (size_t)s->groups.count + (size_t)s->world * s->workers * 2 + 1;
	autofree struct piece *at = malloc(room * 2 * sizeof *at);
	autofree struct clair_part *parts = calloc(s->workers, sizeof *parts);
	struct clair_indices items = { 0 }, merged = { 0 };
	struct pieces pieces = { at, 0 };

	if (!at || !parts)
		return -ENOMEM;
	int r = s->windowed && s->shuffle ? stripes(s, epoch, &pieces) : full(s, epoch, &pieces);
	for (size_t i = 0; i < pieces.count && r == 0; i++) {
		size_t before = items.count;

		if (at[i].worker / s->workers != rank)
			continue;
		r = items_of(s, epoch, &at[i], &items);
		parts[at[i].worker % s->workers].count += items.count - before;
	}
	size_t used = 0;
	for (uint32_t w = 0; w < s->workers && r == 0; w++) {
		parts[w].items = items.at + used;
		used += parts[w].count;
	}
	if (r == 0 && items.count)
		r = clair_groups_interleave(parts, s->workers, (size_t)s->batch, &merged);
	if (r == 0 && merged.count)
		r = clair_groups_emit(&s->groups, merged.at, merged.count, out);
	clair_indices_finish(&items);
	clair_indices_finish(&merged);
	return r;
}

static const struct clair_family_word words[] = {
	{ "chunks", "1", "items a chunk: a number, or a file with one a line" },
	{ "seed", "42", "seed of StreamingDataset" },
	{ "shuffle", "0", "as the argument" },
	{ "kind", "full", "full (local disks, FUSE) or window (nfs, lustre, gpfs, …)" },
	{ "nodes", "1", "nodes of the job" },
	{ "item_window", "256", "item_shuffle_window" },
	{ "window", "16", "WindowShuffle's window of chunks" },
	{ NULL },
};

const struct clair_family clair_family_litdata = {
	.name = "litdata",
	.help = "LitData's StreamingDataset and StreamingDataLoader",
	.versions = "litdata 0.2.76",
	.words = words,
	.open = litdata_open,
	.epoch = litdata_epoch,
	.close = litdata_close,
};
