/* SPDX-License-Identifier: BSD-3-Clause */
/* LeRobot, Anemoi and PhysicsNeMo. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"
#include "torch_perm.h"

/* ---- LeRobot's EpisodeAwareSampler */

struct lerobot {
	struct clair_groups groups; /* episodes */
	uint32_t world;
	enum clair_take take;
	uint64_t seed;
	uint32_t *frames, *order, count;
};

static void lerobot_close(void *p)
{
	struct lerobot *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	free(s->frames);
	free(s->order);
	free(s);
}

/* The frames that are left: of the chosen episodes, without their ends. */
static int lerobot_frames(struct lerobot *s, const struct clair_words *words, char **error)
{
	const char *file = clair_words_get(words, "episodes");
	autofree uint8_t *chosen = calloc((size_t)s->groups.count + 1, 1);
	autofree uint64_t *list = NULL;
	uint64_t first = 0, last = 0;
	size_t count = 0;
	int r = clair_words_uint(words, "drop_first", 0, UINT32_MAX, &first, error);

	if (r == 0)
		r = clair_words_uint(words, "drop_end", 0, UINT32_MAX, &last, error);
	if (r == 0 && file && s->groups.count)
		r = clair_groups_read(file, s->groups.count - 1, &list, &count, error);
	if (r < 0)
		return r;
	s->frames = malloc(((size_t)s->groups.total + 1) * sizeof *s->frames);
	s->order = malloc(((size_t)s->groups.total + 1) * sizeof *s->order);
	if (!chosen || !s->frames || !s->order)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		chosen[list[i]] = 1;
	for (uint32_t k = 0; k < s->groups.count; k++)
		for (uint64_t i = first; i + last < s->groups.size[k] && (!file || chosen[k]); i++)
			s->frames[s->count++] = (uint32_t)(s->groups.start[k] + i);
	return 0;
}

static int lerobot_open(const struct clair_order_params *params, void **out, char **error)
{
	struct lerobot *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = clair_groups_init(&s->groups, params, "lengths", error);
	if (r == 0)
		r = clair_words_u64(params->words, "seed", 1000, &s->seed, error);
	if (r == 0)
		r = clair_take_word(params->words, CLAIR_TAKE_STRIDE, &s->take, error);
	if (r == 0)
		r = lerobot_frames(s, params->words, error);
	if (r < 0) {
		lerobot_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int lerobot_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct lerobot *s = p;
	struct clair_np_seed_sequence ss;
	struct clair_indices mine = { 0 };
	struct clair_mt mt;
	uint32_t key[4], low = 0;
	size_t k = clair_np_words(s->seed, key);

	k += clair_np_words(epoch, key + k);
	clair_np_seed_sequence(&ss, key, k, NULL, 0);
	clair_np_seed_state(&ss, &low, 1); /* torch takes the low half of the 64 bits */
	clair_torch_seed(&mt, low);
	clair_torch_randperm(&mt, s->count, s->order);
	for (uint32_t i = 0; i < s->count; i++)
		s->order[i] = s->frames[s->order[i]];
	int r = clair_take(s->take, s->order, s->count, s->world, rank, &mine);
	if (r == 0)
		r = clair_groups_emit(&s->groups, mine.at, mine.count, out);
	clair_indices_finish(&mine);
	return r;
}

static const struct clair_family_word lerobot_words[] = {
	{ "seed", "1000", "the training's seed" },
	{ "lengths", "", "frames an episode: a number, or a file with one a line" },
	{ "episodes", "", "a file with the episodes that are used" },
	{ "drop_first", "0", "frames left out at an episode's start" },
	{ "drop_end", "0", "and at its end" },
	{ "take", "stride", "a rank's part: all, stride, pad, drop, block" },
	{ NULL },
};

const struct clair_family clair_family_lerobot = {
	.name = "lerobot",
	.help = "LeRobot's EpisodeAwareSampler",
	.versions = "after 0.4.4",
	.words = lerobot_words,
	.open = lerobot_open,
	.epoch = lerobot_epoch,
	.close = lerobot_close,
};

/* ---- Anemoi's MultiDataset */

struct anemoi {
	uint32_t n, world, workers;
	uint64_t base, context, batch, at;
	bool persistent;
	struct clair_pcg64 g;
	uint32_t *order;
};

static void anemoi_close(void *p)
{
	struct anemoi *s = p;

	if (!s)
		return;
	free(s->order);
	free(s);
}

static int anemoi_open(const struct clair_order_params *params, void **out, char **error)
{
	struct anemoi *s = calloc(1, sizeof *s);
	uint64_t workers = 0;

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->at = UINT64_MAX;
	int r = clair_words_u64(params->words, "seed", 42, &s->base, error);
	if (r == 0)
		r = clair_words_uint(params->words, "context", 2, UINT32_MAX, &s->context,
				     error);
	if (r == 0)
		r = clair_words_uint(params->words, "workers", 0, 4096, &workers, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_bool(params->words, "persistent", false, &s->persistent,
				     error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	s->workers = workers ? (uint32_t)workers : 1;
	s->order = malloc(((size_t)s->n + 1) * sizeof *s->order);
	if (r == 0 && !s->order)
		r = -ENOMEM;
	if (r < 0) {
		anemoi_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* A worker's generator: seeded from the run's number, the context and the epoch; one
 * double is drawn from it before the first choice. */
static void anemoi_seed(struct anemoi *s, uint64_t epoch)
{
	struct clair_np_seed_sequence ss;
	uint32_t key[2], spawn[3] = { (uint32_t)s->context }, seed = 0;
	size_t k = clair_np_words(s->base, key);

	clair_np_seed_sequence(&ss, key, k, spawn, 1 + clair_np_words(epoch, spawn + 1));
	clair_np_seed_state(&ss, &seed, 1);
	clair_pcg64_seed(&s->g, seed);
	clair_pcg64_double(&s->g);
}

static int anemoi_order(struct anemoi *s, uint64_t epoch)
{
	uint64_t from = epoch;
	int r = 0;

	if (s->at == epoch)
		return 0;
	if (s->persistent)
		from = s->at == UINT64_MAX || s->at > epoch ? 0 : s->at + 1;
	for (uint64_t e = from; e <= epoch && r == 0; e++) {
		if (!s->persistent || e == 0)
			anemoi_seed(s, e);
		r = clair_pcg64_choice(&s->g, s->n, s->n, true, s->order);
	}
	s->at = r == 0 ? epoch : UINT64_MAX;
	return r;
}

static int anemoi_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct anemoi *s = p;
	uint32_t shard = s->n / s->world, each = shard / s->workers, more = shard % s->workers;
	autofree struct clair_part *parts = calloc(s->workers, sizeof *parts);
	uint32_t at = rank * shard;
	int r = anemoi_order(s, epoch);

	if (!parts)
		return -ENOMEM;
	for (uint32_t w = 0; w < s->workers; w++) {
		parts[w] = (struct clair_part){ s->order + at, each + (w < more) };
		at += each + (w < more);
	}
	return r < 0 ? r : clair_groups_interleave(parts, s->workers, (size_t)s->batch, out);
}

static const struct clair_family_word anemoi_words[] = {
	{ "seed", "42", "ANEMOI_BASE_SEED, else SLURM_JOB_ID, else 42" },
	{ "context", "2", "2: training" },
	{ "persistent", "0", "1: the same workers for every epoch" },
	{ NULL },
};

const struct clair_family clair_family_anemoi = {
	.name = "anemoi",
	.help = "anemoi-training's MultiDataset (rank = reader group)",
	.versions = "anemoi-training 0.x",
	.words = anemoi_words,
	.open = anemoi_open,
	.epoch = anemoi_epoch,
	.close = anemoi_close,
};

/* ---- PhysicsNeMo's ERA5 source: a rank shuffles its own block on and on. */

struct physicsnemo {
	uint32_t n, world;
	uint64_t batch;
};

static int physicsnemo_open(const struct clair_order_params *params, void **out, char **error)
{
	struct physicsnemo *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	int r = clair_words_uint(params->words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	if (r < 0) {
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

static int physicsnemo_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct physicsnemo *s = p;
	autofree uint32_t *all = malloc(((size_t)s->n + 1) * sizeof *all);
	size_t before = out->count;
	struct clair_pcg64 g;

	if (!all)
		return -ENOMEM;
	clair_iota(all, s->n);
	int r = clair_take(CLAIR_TAKE_SPREAD, all, s->n, s->world, rank, out);
	size_t count = out->count - before;
	for (uint64_t e = 0; e <= epoch && r == 0 && count; e++) {
		clair_pcg64_seed(&g, e);
		clair_pcg64_shuffle(&g, out->at + before, count);
	}
	out->count -= count % s->batch;
	return r;
}

static const struct clair_family_word physicsnemo_words[] = {
	{ "batch", "1", "batch_size; the short last batch is dropped" },
	{ NULL },
};

const struct clair_family clair_family_physicsnemo = {
	.name = "physicsnemo",
	.help = "PhysicsNeMo's ERA5 DALI source",
	.versions = "",
	.words = physicsnemo_words,
	.open = physicsnemo_open,
	.epoch = physicsnemo_epoch,
	.close = free,
};
