/* SPDX-License-Identifier: BSD-3-Clause */
/* YOLOv5's training loader. Its order comes from a sampler of its own; a mosaic opens
 * three more images, chosen by the Python generator of the worker that makes the item.
 * Batch k of the run belongs to worker k mod workers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "numpy_random.h"
#include "order_take.h"
#include "python_random.h"
#include "torch_draw.h"

#define YOLOV5_SEED 6148914691236517205ull

/* What one rank has: made when it is first asked for. */
struct rank_state {
	bool made;
	struct clair_torch_walk walk; /* the loader's generator */
	struct clair_mt *worker;      /* Python's, one a worker; owned */
	uint32_t *shard; /* images that the rank ever opens, ascending; owned */
	uint32_t count;
	uint64_t next, batches; /* the next epoch, batches that were made before it */
};

struct state {
	uint32_t n, world, batch, workers;
	uint64_t seed, prefetch;
	double mosaic, mixup;
	bool albumentations;
	struct rank_state *ranks; /* world of them; owned */
	uint32_t *items;          /* owned: an epoch's positions in the shard */
};

static void yolov5_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	for (uint32_t r = 0; s->ranks && r < s->world; r++) {
		free(s->ranks[r].worker);
		free(s->ranks[r].shard);
	}
	free(s->ranks);
	free(s->items);
	free(s);
}

static int read_words(struct state *s, const struct clair_words *w, char **error)
{
	uint64_t batch = 0, workers = 0;

	int r = clair_words_u64(w, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(w, "batch", 16, UINT32_MAX, &batch, error);
	if (r == 0)
		r = clair_words_uint(w, "workers", 8, 4096, &workers, error);
	if (r == 0)
		r = clair_words_uint(w, "prefetch", 2, 1u << 20, &s->prefetch, error);
	if (r == 0)
		r = clair_words_double(w, "mosaic", 1, &s->mosaic, error);
	if (r == 0)
		r = clair_words_double(w, "mixup", 0, &s->mixup, error);
	if (r == 0)
		r = clair_words_bool(w, "albumentations", false, &s->albumentations,
		                     error);
	if (r == 0 && (!batch || !workers))
		r = clair_bad(error, "%s=0: it must be at least 1",
		              batch ? "workers" : "batch");
	s->batch = (uint32_t)batch;
	s->workers = (uint32_t)workers;
	return r;
}

static int yolov5_open(const struct clair_order_params *params, void **out,
                       char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = read_words(s, params->words, error);
	if (r == 0) {
		s->ranks = calloc(s->world, sizeof *s->ranks);
		s->items = malloc(sizeof *s->items * (s->n + (size_t)s->world + 1));
		r = s->ranks && s->items ? 0 : -ENOMEM;
	}
	if (r < 0)
		yolov5_close(s);
	else
		*out = s;
	return r;
}

/* With several processes each keeps the images whose place in one NumPy permutation is
 * its own modulo world. */
static int make_shard(const struct state *s, struct rank_state *k, uint32_t rank)
{
	struct clair_mt mt;

	k->shard = malloc(sizeof *k->shard * (s->n + 1ul));
	if (!k->shard)
		return -ENOMEM;
	clair_iota(k->shard, s->n);
	k->count = s->n;
	if (s->world == 1)
		return 0;
	clair_mt_seed(&mt, 0);
	clair_np_permutation(&mt, s->n, s->items);
	k->count = 0;
	for (uint32_t i = 0; i < s->n; i++)
		if (s->items[i] % s->world == rank)
			k->shard[k->count++] = i;
	return 0;
}

static int begin(const struct state *s, struct rank_state *k, uint32_t rank)
{
	/* RANK is -1 with one process. */
	uint64_t seed = YOLOV5_SEED + s->seed + rank - (s->world == 1);
	int r = k->shard ? 0 : make_shard(s, k, rank);

	if (r == 0 && !k->worker)
		k->worker = malloc(sizeof *k->worker * s->workers);
	if (r < 0 || !k->worker)
		return -ENOMEM;
	clair_torch_walk_init(&k->walk, seed);
	uint64_t base = clair_mt_u64(&k->walk.mt) & INT64_MAX;
	k->walk.at = 2;
	for (uint32_t w = 0; w < s->workers; w++)
		clair_py_seed(&k->worker[w], (uint32_t)(base + w));
	k->next = k->batches = 0;
	k->made = true;
	return 0;
}

/* The items of the epoch that K stands before; returns how many. */
static uint64_t make_items(struct state *s, struct rank_state *k)
{
	uint64_t share = ((uint64_t)s->n + s->world - 1) / s->world;
	uint64_t batches = (share + s->batch - 1) / s->batch,
	         ahead = s->prefetch * s->workers;
	uint64_t taken = k->next * batches;
	struct clair_mt mt;

	if (s->world == 1) {
		clair_torch_walk_perm(&k->walk, k->walk.at, s->n, s->items);
		clair_torch_walk_to(&k->walk,
		                    k->walk.at + clair_torch_randperm_draws(s->n));
		return s->n;
	}
	if (!k->count)
		return 0;
	clair_torch_seed(&mt, taken > ahead ? (taken - ahead) / batches : 0);
	clair_torch_randperm(&mt, k->count, s->items);
	for (uint64_t i = k->count; i < share; i++)
		s->items[i] = s->items[i - k->count];
	return share;
}

static void skip_doubles(struct clair_mt *g, unsigned count)
{
	clair_mt_skip(g, 2 * count);
}

/* One mosaic: its centre, three partners, the order of the four, the perspective. */
static int make_mosaic(const struct rank_state *k, struct clair_mt *g, uint32_t index,
                       struct clair_indices *out)
{
	uint32_t four[4] = {index};
	int r = 0;

	skip_doubles(g, 2);
	for (unsigned i = 1; i < 4; i++)
		four[i] = k->shard[(uint32_t)(clair_py_random(g) * k->count)];
	clair_py_shuffle(g, four, 4);
	for (unsigned i = 0; i < 4 && r == 0; i++)
		r = clair_indices_append(out, four[i]);
	skip_doubles(g, 8);
	return r;
}

static int make_item(const struct state *s, const struct rank_state *k,
                     struct clair_mt *g, uint32_t index, struct clair_indices *out)
{
	int r;

	if (clair_py_random(g) < s->mosaic) {
		r = make_mosaic(k, g, index, out);
		if (clair_py_random(g) < s->mixup && r == 0)
			r = make_mosaic(k, g, k->shard[clair_py_randbelow(g, k->count)],
			                out);
	} else {
		r = clair_indices_append(out, index);
		skip_doubles(g, 8);
	}
	skip_doubles(g, s->albumentations ? 3 : 2); /* flips, and theirs */
	return r;
}

static int yolov5_epoch(void *p, uint64_t epoch, uint32_t rank,
                        struct clair_indices *out)
{
	struct state *s = p;
	struct rank_state *k = &s->ranks[rank];
	int r = 0;

	if (!s->n)
		return 0;
	if (!k->made || k->next > epoch)
		r = begin(s, k, rank);
	/* The workers' generators go on from epoch to epoch: each has to be made. */
	while (r == 0 && k->next <= epoch) {
		size_t before = out->count;
		uint64_t count = make_items(s, k);

		for (uint64_t i = 0; i < count && r == 0; i++) {
			struct clair_mt *g =
			    &k->worker[(k->batches + i / s->batch) % s->workers];

			r = make_item(s, k, g, k->shard[s->items[i]], out);
		}
		k->batches += (count + s->batch - 1) / s->batch;
		if (k->next++ < epoch)
			out->count = before;
	}
	if (r < 0)
		k->made = false;
	return r;
}

static const struct clair_family_word words[] = {
    {"seed", "0", "--seed"},
    {"batch", "16", "images a process and step"},
    {"workers", "8", "loader workers a process"},
    {"prefetch", "2", "prefetch_factor"},
    {"mosaic", "1", "hyp's mosaic: with 0 an item opens one image"},
    {"mixup", "0", "hyp's mixup"},
    {"albumentations", "0", "1: the package is installed"},
    {NULL},
};

const struct clair_family clair_family_yolov5 = {
    .name = "yolov5",
    .help = "YOLOv5's train loader, with the images of its mosaics",
    .versions = "",
    .words = words,
    .open = yolov5_open,
    .epoch = yolov5_epoch,
    .close = yolov5_close,
};
