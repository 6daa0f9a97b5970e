/* SPDX-License-Identifier: BSD-3-Clause */
/* Which tar shards a rank's workers open: webdataset, open_clip, timm. Workers go through
 * their own lists side by side, one shard of each in turn. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "order_groups.h"
#include "order_take.h"
#include "python_random.h"

enum kind { WEBDATASET, OPEN_CLIP, TIMM };

struct state {
	enum kind kind;
	uint32_t n, world, workers; /* workers >= 1 */
	bool any_workers, deterministic, persistent, simple, ordered;
	uint64_t buffer, initial, seed, resampled, base_seed;
	char *seed_text; /* WDS_SEED and the like; owned, may be NULL */
};

static void webdataset_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->seed_text);
	free(s);
}

/* seed=, else WDS_SEED (wds_seed=), which Python takes as a text, else one draw of the
 * global generator when the dataset is made. */
static int webdataset_seed(struct state *s, const struct clair_words *words, char **error)
{
	const char *text = clair_words_get(words, "wds_seed");
	struct clair_mt mt;
	uint64_t python = 0;

	if (clair_words_get(words, "seed"))
		return clair_words_u64(words, "seed", 0, &s->seed, error);
	if (text) {
		s->seed_text = strdup(text);
		return s->seed_text ? 0 : -ENOMEM;
	}
	int r = clair_words_u64(words, "python_seed", 0, &python, error);
	clair_py_seed(&mt, python);
	s->seed = clair_py_randbelow(&mt, 1000001);
	return r;
}

static int webdataset_words(struct state *s, const struct clair_words *words, char **error)
{
	uint64_t none = UINT64_MAX;
	int r = clair_words_u64(words, "shardshuffle", none, &s->buffer, error);

	s->ordered = s->buffer == none;
	s->initial = 100;
	if (r == 0)
		r = clair_words_bool(words, "detshuffle", false, &s->deterministic, error);
	if (r == 0)
		r = clair_words_bool(words, "persistent", false, &s->persistent, error);
	if (r == 0)
		r = clair_words_bool(words, "simple", false, &s->simple, error);
	return r == 0 ? webdataset_seed(s, words, error) : r;
}

static int open_as(enum kind kind, const struct clair_order_params *params, void **out,
		   char **error)
{
	const struct clair_words *words = params->words;
	struct state *s = calloc(1, sizeof *s);
	uint64_t workers = 0;

	if (!s)
		return -ENOMEM;
	*s = (struct state){ .kind = kind, .n = params->n, .world = params->world };
	s->buffer = kind == OPEN_CLIP ? 2000 : 500;
	s->initial = kind == OPEN_CLIP ? 500 : 100;
	s->deterministic = s->persistent = true;
	int r = clair_words_uint(words, "workers", 0, 4096, &workers, error);
	s->any_workers = workers > 0;
	s->workers = workers ? (uint32_t)workers : 1;
	if (r == 0 && kind == WEBDATASET)
		r = webdataset_words(s, words, error);
	else if (r == 0)
		r = clair_words_u64(words, "seed", kind == TIMM ? 42 : 0, &s->seed, error);
	if (r == 0 && kind != TIMM)
		r = clair_words_uint(words, "resampled", 0, UINT32_MAX, &s->resampled, error);
	if (r == 0 && kind == OPEN_CLIP)
		r = clair_words_u64(words, "base_seed", 0, &s->base_seed, error);
	if (r < 0) {
		webdataset_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static uint32_t pick(struct clair_mt *mt, uint32_t *buffer, size_t *count)
{
	size_t k = clair_py_randbelow(mt, *count);
	uint32_t v = buffer[k];

	buffer[k] = buffer[--*count];
	return v;
}

/* webdataset's buffered shuffle, in place; two come in for each one that goes out until
 * the buffer is full. */
static int buffered(struct clair_mt *mt, uint32_t *items, size_t n, uint64_t size,
		    uint64_t initial)
{
	autofree uint32_t *buffer = malloc((n + 1) * sizeof *buffer);
	size_t count = 0, in = 0, out = 0;

	if (!buffer)
		return -ENOMEM;
	if (initial > size)
		initial = size;
	while (in < n) {
		buffer[count++] = items[in++];
		if (count < size && in < n)
			buffer[count++] = items[in++];
		if (count >= initial)
			items[out++] = pick(mt, buffer, &count);
	}
	while (count)
		items[out++] = pick(mt, buffer, &count);
	return 0;
}

static int seed_for(const struct state *s, uint64_t epoch, struct clair_mt *mt)
{
	bool fresh = s->any_workers && !s->persistent; /* workers that count from 0 again */

	if (s->seed_text)
		return clair_py_seed_str(mt, s->seed_text);
	clair_py_seed(mt, s->seed + (s->deterministic && !fresh ? epoch : 0));
	return 0;
}

/* The shards of one worker, into LIST, which has room for all. */
static int worker_list(const struct state *s, uint64_t epoch, uint32_t rank, uint32_t worker,
		       uint32_t *list, size_t *count)
{
	uint64_t step = (uint64_t)s->world * s->workers;
	uint64_t first = s->kind == TIMM ? (uint64_t)rank * s->workers + worker :
					   (uint64_t)worker * s->world + rank;
	struct clair_mt mt;
	size_t n = 0;
	int r = seed_for(s, epoch, &mt);

	if (r < 0)
		return r;
	if (s->kind == WEBDATASET && !s->simple) { /* split, then shuffled */
		for (uint64_t i = first; i < s->n; i += step)
			list[n++] = (uint32_t)i;
		*count = n;
		return s->ordered ? 0 : buffered(&mt, list, n, s->buffer, s->initial);
	}
	autofree uint32_t *all = malloc(((size_t)s->n + 1) * sizeof *all);
	if (!all)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++)
		all[i] = i;
	if (s->simple)
		clair_py_shuffle(&mt, all, s->n);
	else
		r = buffered(&mt, all, s->n, s->buffer, s->initial);
	for (uint64_t i = first; i < s->n; i += step)
		list[n++] = all[i];
	*count = n;
	return r;
}

/* Shards drawn with replacement: the same number for each worker. */
static void resample(const struct state *s, uint64_t epoch, uint32_t rank, uint32_t worker,
		     uint32_t *list)
{
	uint64_t seed = s->base_seed + worker + epoch * s->workers;
	struct clair_mt mt;

	if (s->kind == WEBDATASET) {
		uint64_t of[3] = { (uint64_t)rank * 1000 + worker, epoch, s->seed };

		seed = 0;
		for (int i = 0; i < 3; i++)
			seed = (seed * 31 + of[i]) & 0x7fffffff;
	}
	clair_py_seed(&mt, seed);
	for (uint64_t i = 0; i < s->resampled; i++)
		list[i] = (uint32_t)clair_py_randbelow(&mt, s->n);
}

static int webdataset_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	size_t room = s->resampled ? (size_t)s->resampled * s->workers : s->n, used = 0;
	autofree uint32_t *lists = malloc((room + 1) * sizeof *lists);
	autofree struct clair_part *parts = calloc(s->workers, sizeof *parts);
	int r = lists && parts ? 0 : -ENOMEM;

	if (s->n == 0)
		return r;
	for (uint32_t w = 0; w < s->workers && r == 0; w++) {
		parts[w].items = lists + used;
		parts[w].count = (size_t)s->resampled;
		if (s->resampled)
			resample(s, epoch, rank, w, lists + used);
		else
			r = worker_list(s, epoch, rank, w, lists + used, &parts[w].count);
		used += parts[w].count;
	}
	return r < 0 ? r : clair_groups_interleave(parts, s->workers, 1, out);
}

static int webdataset_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(WEBDATASET, params, out, error);
}

static int open_clip_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(OPEN_CLIP, params, out, error);
}

static int timm_open(const struct clair_order_params *params, void **out, char **error)
{
	return open_as(TIMM, params, out, error);
}

static const struct clair_family_word words[] = {
	{ "seed", "", "seed= of WebDataset" },
	{ "wds_seed", "", "the environment's WDS_SEED, without seed" },
	{ "python_seed", "0", "random.seed()'s, without both" },
	{ "shardshuffle", "", "buffer (True is 100); missing: shards stay in order" },
	{ "detshuffle", "0", "1: seed + epoch" },
	{ "persistent", "0", "1: persistent workers" },
	{ "resampled", "0", "shards a worker draws an epoch: ResampledShards(deterministic)" },
	{ "simple", "0", "1: SimpleShardList(seed)" },
	{ NULL },
};

const struct clair_family clair_family_webdataset = {
	.name = "webdataset",
	.help = "webdataset's shards, split by node and by worker",
	.versions = "webdataset 0.2.100 to 1.0.2",
	.words = words,
	.open = webdataset_open,
	.epoch = webdataset_epoch,
	.close = webdataset_close,
};

static const struct clair_family_word open_clip_words[] = {
	{ "seed", "0", "--seed" },
	{ "resampled", "0", "shards a worker draws an epoch: --dataset-resampled" },
	{ "base_seed", "0", "the loader's base seed, for resampled" },
	{ NULL },
};

const struct clair_family clair_family_open_clip_wds = {
	.name = "open-clip-wds",
	.help = "open_clip's tar shards (detshuffle2)",
	.versions = "",
	.words = open_clip_words,
	.open = open_clip_open,
	.epoch = webdataset_epoch,
	.close = webdataset_close,
};

static const struct clair_family_word timm_words[] = {
	{ "seed", "42", "the seed" },
	{ NULL },
};

const struct clair_family clair_family_timm_wds = {
	.name = "timm-wds",
	.help = "timm's wds/ reader: tar shards",
	.versions = "timm 1.0",
	.words = timm_words,
	.open = timm_open,
	.epoch = webdataset_epoch,
	.close = webdataset_close,
};
