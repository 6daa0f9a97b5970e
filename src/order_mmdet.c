/* SPDX-License-Identifier: BSD-3-Clause */
/* MMDetection's samplers that keep wide and tall images (flags) apart. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"
#include "torch_perm.h"

enum kind { ASPECT_RATIO, DISTRIBUTED_GROUP, GROUP };

struct state {
	enum kind kind;
	uint32_t n, world, flags; /* FLAGS: the highest one, plus 1 */
	uint64_t seed, batch, next;
	bool drop_last;
	struct clair_mt np; /* GROUP: before epoch NEXT (0: anew) */
	uint8_t *flag;
	struct clair_indices order; /* GROUP: of epoch NEXT - 1 */
};

static void mmdet_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->flag);
	clair_indices_finish(&s->order);
	free(s);
}

/* One flag a sample: from the file of the word, or the sizes. */
static int read_flags(struct state *s, const struct clair_order_params *params, char **error)
{
	const char *file = clair_words_get(params->words, "flags");
	autofree uint64_t *list = NULL;
	size_t count = s->n;
	int r = file ? clair_groups_read(file, 255, &list, &count, error) : 0;

	if (r == 0 && count != s->n)
		r = clair_bad(error, "flags=%s: %zu lines for %u samples", file, count, s->n);
	if (r == 0 && !file && !params->sizes)
		r = clair_bad(error, "flags: a file with a flag (0 or 1: wide) a sample is needed");
	if (r < 0)
		return r;
	s->flag = calloc((size_t)s->n + 1, 1);
	if (!s->flag)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++) {
		s->flag[i] = (uint8_t)(file ? list[i] : params->sizes[i]);
		if (s->flag[i] >= s->flags)
			s->flags = s->flag[i] + 1u;
	}
	return 0;
}

static int open_as(enum kind kind, const struct clair_order_params *params, void **out,
		   char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	*s = (struct state){ .kind = kind, .n = params->n, .world = params->world };
	int r = read_flags(s, params, error);
	if (r == 0)
		r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", 2, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_bool(params->words, "drop_last", false, &s->drop_last, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	if (r < 0) {
		mmdet_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* mmdet 3: batches of one kind over DefaultSampler's order. What is left over comes last,
 * both kinds together. */
static int aspect_ratio_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	autofree uint32_t *perm = malloc(((size_t)s->n + 1) * sizeof *perm);
	struct clair_indices order = { 0 }, bucket[2] = { { 0 }, { 0 } };
	struct clair_mt mt;

	if (!perm)
		return -ENOMEM;
	clair_torch_seed(&mt, s->seed + epoch);
	clair_torch_randperm(&mt, s->n, perm);
	int r = clair_take(CLAIR_TAKE_PAD, perm, s->n, s->world, rank, &order);
	for (size_t i = 0; i < order.count && r == 0; i++) {
		struct clair_indices *b = &bucket[s->flag[order.at[i]] != 0];

		r = clair_indices_append(b, order.at[i]);
		if (r == 0 && b->count == s->batch) {
			r = clair_take_copy(b->at, b->count, out);
			b->count = 0;
		}
	}
	if (r == 0)
		r = clair_take_copy(bucket[1].at, bucket[1].count, &bucket[0]);
	/* drop_last also drops a last batch that is full */
	size_t rest = bucket[0].count;
	if (s->drop_last)
		rest = rest ? (rest - 1) / s->batch * s->batch : 0;
	if (r == 0)
		r = clair_take_copy(bucket[0].at, rest, out);
	clair_indices_finish(&order);
	clair_indices_finish(&bucket[0]);
	clair_indices_finish(&bucket[1]);
	return r;
}

static uint32_t *members(const struct state *s, uint32_t flag, uint32_t *count)
{
	uint32_t *list = malloc(((size_t)s->n + 1) * sizeof *list);

	*count = 0;
	for (uint32_t i = 0; list && i < s->n; i++)
		if (s->flag[i] == flag)
			list[(*count)++] = i;
	return list;
}

/* Whole batches of ORDER in the order BATCHES. */
static int by_batches(const struct state *s, const struct clair_indices *order,
		      const uint32_t *batches, size_t from, size_t count,
		      struct clair_indices *out)
{
	int r = 0;

	for (size_t i = from; i < from + count && r == 0; i++)
		r = clair_indices_append(out, order->at[batches[i / s->batch] * s->batch +
							i % s->batch]);
	return r;
}

static int distributed_fill(const struct state *s, struct clair_mt *mt,
			    struct clair_indices *order)
{
	autofree uint32_t *perm = malloc(((size_t)s->n + 1) * sizeof *perm);
	uint64_t unit = s->batch * s->world;
	int r = perm ? 0 : -ENOMEM;

	for (uint32_t f = 0; f < s->flags && r == 0; f++) {
		uint32_t count = 0;
		autofree uint32_t *list = members(s, f, &count);

		if (!list)
			return -ENOMEM;
		if (count == 0)
			continue;
		clair_torch_randperm(mt, count, perm);
		uint64_t full = (count + unit - 1) / unit * unit;
		for (uint64_t i = 0; i < full && r == 0; i++)
			r = clair_indices_append(order, list[perm[i % count]]);
	}
	return r;
}

static int distributed_group_epoch(void *p, uint64_t epoch, uint32_t rank,
				   struct clair_indices *out)
{
	const struct state *s = p;
	struct clair_indices order = { 0 };
	struct clair_mt mt;

	clair_torch_seed(&mt, s->seed + epoch);
	int r = distributed_fill(s, &mt, &order);
	size_t each = order.count / s->world, batches = order.count / s->batch;
	autofree uint32_t *perm = malloc((batches + 1) * sizeof *perm);
	if (r == 0 && !perm)
		r = -ENOMEM;
	if (r == 0) {
		clair_torch_randperm(&mt, (uint32_t)batches, perm);
		r = by_batches(s, &order, perm, rank * each, each, out);
	}
	clair_indices_finish(&order);
	return r;
}

/* One GPU: NumPy's global generator, which goes on from epoch to epoch. */
static int group_make(struct state *s)
{
	struct clair_indices order = { 0 };
	int r = 0;

	for (uint32_t f = 0; f < s->flags && r == 0; f++) {
		uint32_t count = 0;
		autofree uint32_t *list = members(s, f, &count);

		if (!list)
			return -ENOMEM;
		if (count == 0)
			continue;
		clair_np_shuffle(&s->np, list, count);
		r = clair_take_copy(list, count, &order);
		for (uint64_t i = count; i % s->batch && r == 0; i++)
			r = clair_indices_append(&order,
						 list[clair_np_randint(&s->np, 0, count)]);
	}
	size_t batches = order.count / s->batch;
	autofree uint32_t *perm = malloc((batches + 1) * sizeof *perm);
	if (r == 0 && !perm)
		r = -ENOMEM;
	s->order.count = 0;
	if (r == 0) {
		clair_np_permutation(&s->np, (uint32_t)batches, perm);
		r = by_batches(s, &order, perm, 0, order.count, &s->order);
	}
	clair_indices_finish(&order);
	return r;
}

static int group_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	int r = 0;

	(void)rank;
	if (s->next == 0 || s->next > epoch + 1) {
		clair_mt_seed(&s->np, (uint32_t)s->seed);
		s->next = 0;
	}
	for (; s->next <= epoch && r == 0; s->next++)
		r = group_make(s);
	return r < 0 ? r : clair_take_copy(s->order.at, s->order.count, out);
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "the sampler's seed (mmdet-group: np.random.seed()'s)" },
	{ "flags", "", "a file with a flag a sample, one a line (1: wide)" },
	{ "batch", "2", "samples_per_gpu, batch_size" },
	{ "drop_last", "0", "AspectRatioBatchSampler's drop_last" },
	{ NULL },
};

#define MMDET_FAMILY(id, title, kind, about, since, run)                                \
	static int id##_open(const struct clair_order_params *params, void **state,     \
			     char **error)                                              \
	{                                                                               \
		return open_as(kind, params, state, error);                             \
	}                                                                               \
	const struct clair_family clair_family_##id = {                                 \
		.name = title,                                                          \
		.help = about,                                                          \
		.versions = since,                                                      \
		.words = words,                                                         \
		.open = id##_open,                                                      \
		.epoch = run,                                                           \
		.close = mmdet_close,                                                   \
	};

MMDET_FAMILY(mmdet_aspect_ratio, "mmdet-aspect-ratio", ASPECT_RATIO,
	     "AspectRatioBatchSampler over mmengine's DefaultSampler", "mmdet 3.x",
	     aspect_ratio_epoch)
MMDET_FAMILY(mmdet_distributed_group, "mmdet-distributed-group", DISTRIBUTED_GROUP,
	     "DistributedGroupSampler (BEVFormer too)", "mmdet 2.x, mmdet3d 0.x",
	     distributed_group_epoch)
MMDET_FAMILY(mmdet_group, "mmdet-group", GROUP, "GroupSampler, one GPU", "mmdet 2.x",
	     group_epoch)
