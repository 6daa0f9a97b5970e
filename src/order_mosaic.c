/* SPDX-License-Identifier: BSD-3-Clause */
/* MosaicML Streaming: StreamingDataset's shuffles, then its relaxed partition. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "mosaic_shuffle.h"
#include "order_take.h"

static const char *const algorithms[] = { "py1e", "py1br", "py1b", "py1s",
					  "py2s", "naive", NULL };

struct state {
	struct mosaic m;
	struct clair_groups groups;
	uint32_t world, nodes, workers, batch;
	bool shuffle;
	uint64_t at; /* the epoch that ORDER is of */
	uint32_t *order;
};

static void mosaic_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	free(s->order);
	free(s);
}

static int mosaic_words(struct state *s, const struct clair_words *words, char **error)
{
	uint64_t nodes = 1, workers = 0, batch = 1, canonical = 0, block = 0;
	unsigned algorithm = 0;
	int r = clair_name_word(words, "algo", algorithms, 0, &algorithm, error);

	s->m.algorithm = (enum mosaic_algorithm)algorithm;
	if (r == 0)
		r = clair_words_u64(words, "seed", 9176, &s->m.seed, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", false, &s->shuffle, error);
	if (r == 0)
		r = clair_words_uint(words, "nodes", 1, s->world, &nodes, error);
	if (r == 0)
		r = clair_words_uint(words, "workers", 0, 4096, &workers, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 1, UINT32_MAX, &batch, error);
	if (r == 0 && (nodes == 0 || batch == 0 || s->world % nodes))
		r = clair_bad(error, "nodes, batch: at least 1, and nodes divides world");
	uint64_t many = algorithm == MOSAIC_PY1S || algorithm == MOSAIC_PY2S ? 64 : 1;
	if (r == 0)
		r = clair_words_uint(words, "canonical", many * nodes, 1 << 20, &canonical,
				     error);
	if (r == 0 && canonical == 0)
		r = clair_bad(error, "canonical=0: it is at least 1");
	if (r == 0 && canonical % nodes && nodes % canonical)
		r = clair_bad(error, "canonical: a multiple of nodes, or it divides them");
	if (r < 0)
		return r;
	uint64_t usual = 4000000 / canonical > 1 << 18 ? 4000000 / canonical : 1 << 18;
	r = clair_words_uint(words, "block", usual, UINT32_MAX, &block, error);
	if (r == 0 && block == 0)
		r = clair_bad(error, "block=0: it is at least 1");
	s->nodes = (uint32_t)nodes;
	s->workers = workers ? (uint32_t)workers : 1;
	s->batch = (uint32_t)batch;
	s->m.canonical = (uint32_t)canonical;
	s->m.block = (uint32_t)block;
	return r;
}

static int mosaic_open(const struct clair_order_params *params, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	s->at = UINT64_MAX;
	int r = clair_groups_init(&s->groups, params, "shards", error);
	if (r == 0)
		r = mosaic_words(s, params->words, error);
	s->order = malloc(((size_t)s->groups.total + 1) * sizeof *s->order);
	if (r == 0 && !s->order)
		r = -ENOMEM;
	if (r < 0) {
		mosaic_close(s);
		return r;
	}
	s->m.groups = &s->groups;
	*out = s;
	return 0;
}

/* Position in the order of element F of the interleaved canonical nodes; each has W. */
static uint32_t position(const struct state *s, uint64_t f, uint64_t w, uint64_t pad)
{
	uint64_t n = s->groups.total, ncn = s->m.canonical, c = f % ncn, i = f / ncn;
	uint64_t start = c * n / ncn, end = (c + 1) * n / ncn, per = (n + ncn - 1) / ncn;

	if (!(n > ncn || (n == ncn && ncn >= s->nodes)))
		return (uint32_t)((c * w + i) % n);
	if (pad && i >= w - pad) {
		uint64_t back = pad + s->nodes / ncn - 1;

		i = i >= back ? i - back : 0;
	}
	return (uint32_t)(start + i - (end - start < per && i == per - 1 ? 1 : 0));
}

/* The rank's part of its node's elements, filled up from the node's last ones. */
static int rank_part(const struct state *s, uint32_t rank, struct clair_indices *out)
{
	uint64_t n = s->groups.total, ncn = s->m.canonical, per = (n + ncn - 1) / ncn, pad = 0;
	uint32_t per_node = s->world / s->nodes, node = rank / per_node;
	int r = 0;

	if (ncn < s->nodes && per % (s->nodes / ncn))
		pad = s->nodes / ncn - per % (s->nodes / ncn);
	uint64_t all = ncn * (per + pad);
	uint64_t m = all > node ? (all - node - 1) / s->nodes + 1 : 0;
	uint64_t extra = m % per_node ? per_node - m % per_node : 0;
	for (uint64_t k = rank % per_node; k < m + extra && r == 0; k += per_node) {
		uint64_t at = k;

		if (k >= m)
			at = per_node + extra - 1 <= m ? k + 1 - per_node - extra : (k - m) % m;
		r = clair_indices_append(out, position(s, at * s->nodes + node, per + pad, pad));
	}
	return r;
}

static int mosaic_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	struct clair_indices part = { 0 }, samples = { 0 };
	int r = 0;

	if (s->groups.total == 0)
		return 0;
	if (s->at != epoch) {
		s->at = UINT64_MAX;
		if (s->shuffle)
			r = mosaic_shuffle(&s->m, epoch, s->order);
		for (uint32_t i = 0; !s->shuffle && i < s->groups.total; i++)
			s->order[i] = i;
		s->at = r == 0 ? epoch : UINT64_MAX;
	}
	/* Worker w has batches w, w + W, …; in turn, that is the order of the part itself. */
	if (r == 0)
		r = rank_part(s, rank, &part);
	for (size_t i = 0; i < part.count && r == 0; i++)
		r = clair_indices_append(&samples, s->order[part.at[i]]);
	if (r == 0)
		r = clair_groups_emit(&s->groups, samples.at, samples.count, out);
	clair_indices_finish(&part);
	clair_indices_finish(&samples);
	return r;
}

static const struct clair_family_word words[] = {
	{ "shards", "", "samples a shard: a number, or a file with one a line" },
	{ "algo", "py1e", "shuffle_algo: py1e, py1br, py1b, py1s, py2s, naive" },
	{ "seed", "9176", "shuffle_seed" },
	{ "shuffle", "0", "1: shuffle=True" },
	{ "nodes", "1", "nodes of the job" },
	{ "canonical", "", "num_canonical_nodes (nodes, for py1s and py2s 64 times that)" },
	{ "block", "", "shuffle_block_size (max(4000000 / canonical, 2^18))" },
	{ NULL },
};

const struct clair_family clair_family_mosaic = {
	.name = "mosaic",
	.help = "MosaicML Streaming's StreamingDataset, batching random, partition relaxed",
	.versions = "0.3 to 0.13",
	.words = words,
	.open = mosaic_open,
	.epoch = mosaic_epoch,
	.close = mosaic_close,
};
