/* SPDX-License-Identifier: BSD-3-Clause */
/* MLPerf's DeepCAM and unet3d, and the DLIO benchmark. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"
#include "python_random.h"
#include "torch_perm.h"

enum kind { DEEPCAM, UNET3D, DLIO_TORCH, DLIO_TF };

struct state {
	enum kind kind;
	uint32_t n, world;
	uint64_t seed, batch, threads, at;
	bool shuffle, change, drop_last;
	struct clair_groups groups; /* DLIO_TORCH: files */
	uint32_t *order;
};

static void mlperf_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->groups);
	free(s->order);
	free(s);
}

static int dlio_words(struct state *s, const struct clair_order_params *params, char **error)
{
	int r = clair_words_uint(params->words, "batch", 1, UINT32_MAX, &s->batch, error);

	if (r == 0)
		r = clair_words_bool(params->words, "shuffle", true, &s->shuffle, error);
	if (r == 0 && s->kind == DLIO_TF)
		r = clair_words_bool(params->words, "change", true, &s->change, error);
	if (r == 0 && s->kind == DLIO_TORCH)
		r = clair_groups_init(&s->groups, params, "samples", error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	if (r == 0 && s->kind == DLIO_TORCH && s->groups.total % s->world)
		r = clair_bad(error, "world=%u: DLIO fails when it does not divide the samples",
			      s->world);
	return r;
}

static int open_as(enum kind kind, const struct clair_order_params *params, void **out,
		   char **error)
{
	struct state *s = calloc(1, sizeof *s);
	struct clair_mt mt;

	if (!s)
		return -ENOMEM;
	*s = (struct state){ .kind = kind, .n = params->n, .world = params->world };
	s->at = UINT64_MAX;
	int r = clair_words_u64(params->words, "seed", kind >= DLIO_TORCH ? 123 : 1, &s->seed,
				error);
	if (r == 0 && kind >= DLIO_TORCH)
		r = dlio_words(s, params, error);
	if (kind == UNET3D) { /* the seed of the shuffle follows one for each rank */
		clair_py_seed(&mt, s->seed);
		for (uint32_t i = 0; i <= s->world; i++)
			s->seed = clair_py_randbelow(&mt, 1ull << 32);
	}
	size_t room = s->groups.total > s->n ? s->groups.total : s->n;
	s->order = malloc((room + 1) * sizeof *s->order);
	if (r == 0 && !s->order)
		r = -ENOMEM;
	if (r < 0) {
		mlperf_close(s);
		return r;
	}
	*out = s;
	return 0;
}

/* DistributedSampler(drop_last=True) over the list. */
static int distributed_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	struct clair_mt mt;

	if (s->at != epoch) {
		bool unet = s->kind == UNET3D; /* it counts epochs from 1 */

		clair_torch_seed(&mt, unet ? s->seed + epoch + 1 : epoch);
		clair_torch_randperm(&mt, s->n, s->order);
		s->at = epoch;
		if (!unet) {
			autofree uint32_t *list = malloc(((size_t)s->n + 1) * sizeof *list);

			s->at = UINT64_MAX;
			if (!list)
				return -ENOMEM;
			clair_mt_seed(&mt, 12345);
			clair_np_permutation(&mt, s->n, list);
			for (uint32_t i = 0; i < s->n; i++)
				s->order[i] = list[s->order[i]];
			s->at = epoch;
		}
	}
	return clair_take(CLAIR_TAKE_DROP, s->order, s->n, s->world, rank, out);
}

/* The same permutation is applied again each epoch; ranks hold blocks. */
static int dlio_torch_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	uint32_t each = s->groups.total / s->world;
	struct clair_mt mt;

	if (s->at == UINT64_MAX || s->at > epoch) {
		clair_iota(s->order, each);
		s->at = 0;
		clair_mt_seed(&mt, (uint32_t)s->seed);
		if (s->shuffle)
			clair_np_shuffle(&mt, s->order, each);
	}
	for (; s->at < epoch; s->at++) {
		clair_mt_seed(&mt, (uint32_t)s->seed);
		if (s->shuffle)
			clair_np_shuffle(&mt, s->order, each);
	}
	size_t kept = each - each % s->batch;
	autofree uint32_t *mine = malloc((kept + 1) * sizeof *mine);
	if (!mine)
		return -ENOMEM;
	for (size_t i = 0; i < kept; i++)
		mine[i] = s->order[i] + rank * each;
	return clair_groups_emit(&s->groups, mine, kept, out);
}

/* The list is shuffled on and on. A rank starts at its offset, but then goes on from
 * there over the head of the list: ranks read nearly the same files. */
static int dlio_tf_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	struct clair_mt mt;
	int r = 0;

	if (s->n == 0)
		return 0;
	if (s->at == UINT64_MAX || s->at > epoch) {
		clair_iota(s->order, s->n);
		s->at = 0;
		clair_mt_seed(&mt, (uint32_t)(s->seed + s->change));
		if (s->shuffle)
			clair_np_shuffle(&mt, s->order, s->n);
	}
	for (; s->at < epoch; s->at++) {
		clair_mt_seed(&mt, (uint32_t)(s->seed + (s->change ? s->at + 2 : 0)));
		if (s->shuffle)
			clair_np_shuffle(&mt, s->order, s->n);
	}
	uint32_t each = (s->n + s->world - 1) / s->world, k = rank * (s->n / s->world % s->n);
	for (uint32_t i = 0; i < each && r == 0; i++) {
		r = clair_indices_append(out, s->order[k % s->n]);
		k = (i + 1) % s->n;
	}
	return r;
}

static const struct clair_family_word deepcam_words[] = { { NULL } };
static const struct clair_family_word unet3d_words[] = {
	{ "seed", "1", "--seed" },
	{ NULL },
};
static const struct clair_family_word dlio_torch_words[] = {
	{ "seed", "123", "train.seed" },
	{ "shuffle", "1", "reader.sample_shuffle=seed" },
	{ "batch", "1", "reader.batch_size; the short last batch is dropped" },
	{ "samples", "1", "num_samples_per_file" },
	{ NULL },
};
static const struct clair_family_word dlio_tf_words[] = {
	{ "seed", "123", "train.seed" },
	{ "shuffle", "1", "0: in order" },
	{ "change", "1", "train.seed_change_epoch" },
	{ NULL },
};

#define MLPERF_FAMILY(id, title, kind, about, since, run)                               \
	static int id##_open(const struct clair_order_params *params, void **state,     \
			     char **error)                                              \
	{                                                                               \
		return open_as(kind, params, state, error);                             \
	}                                                                               \
	const struct clair_family clair_family_##id = {                                 \
		.name = title,                                                          \
		.help = about,                                                          \
		.versions = since,                                                      \
		.words = id##_words,                                                    \
		.open = id##_open,                                                      \
		.epoch = run,                                                           \
		.close = mlperf_close,                                                  \
	};

MLPERF_FAMILY(deepcam, "deepcam", DEEPCAM, "MLPerf HPC DeepCAM (CamDataset)", "",
	      distributed_epoch)
MLPERF_FAMILY(unet3d, "unet3d", UNET3D, "MLPerf training unet3d, several GPUs", "",
	      distributed_epoch)
MLPERF_FAMILY(dlio_torch, "dlio-torch", DLIO_TORCH, "DLIO benchmark, data_loader pytorch",
	      "DLIO 2.0.0", dlio_torch_epoch)
MLPERF_FAMILY(dlio_tf, "dlio-tf", DLIO_TF, "DLIO benchmark, data_loader tensorflow, npz",
	      "DLIO 2.0.0", dlio_tf_epoch)
