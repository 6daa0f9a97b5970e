/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaders that shuffle a list of files with std::shuffle: DALI's file readers, NoPFS. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "cxx_shuffle.h"
#include "numpy_random.h"
#include "order_groups.h"
#include "order_take.h"

/* ---- nvidia.dali.fn.readers.file and .numpy */

#define DALI_SEED 524287

struct dali {
	uint32_t n, world, version;
	bool random_shuffle, after_epoch, stick, checkpointing;
	uint64_t seed;
	int gcc;
	uint64_t at; /* the reset that ORDER is of, UINT64_MAX: none */
	uint32_t *base, *order;
	struct clair_groups records; /* of container files: theirs; else empty */
};

static void dali_close(void *p)
{
	struct dali *s = p;

	if (!s)
		return;
	clair_groups_finish(&s->records);
	free(s->base);
	free(s->order);
	free(s);
}

static int dali_words(struct dali *s, const struct clair_words *words, char **error)
{
	uint64_t gcc = 0;
	int r = clair_version_word(words, "dali", "2.4", &s->version, error);

	if (r == 0)
		r = clair_words_bool(words, "shuffle", false, &s->random_shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "random_shuffle", s->random_shuffle,
				     &s->random_shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle_after_epoch", false, &s->after_epoch,
				     error);
	if (r == 0)
		r = clair_words_bool(words, "stick_to_shard", false, &s->stick, error);
	if (r == 0)
		r = clair_words_bool(words, "checkpointing", false, &s->checkpointing, error);
	if (r == 0)
		r = clair_words_u64(words, "seed", DALI_SEED, &s->seed, error);
	if (r == 0) /* the wheels' compiler changed between 1.33 and 1.53 */
		r = clair_words_uint(words, "gcc", s->version >= 1053000 ? 11 : 10, 99, &gcc,
				     error);
	s->gcc = (int)gcc;
	if (r == 0 && s->random_shuffle && s->after_epoch)
		return clair_bad(error, "random_shuffle=1: DALI does not take it together "
					"with shuffle_after_epoch=1");
	return r;
}

static int dali_open(const struct clair_order_params *params, void **out, char **error)
{
	struct dali *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->at = UINT64_MAX;
	s->base = malloc(((size_t)s->n + 1) * sizeof *s->base);
	s->order = malloc(((size_t)s->n + 1) * sizeof *s->order);
	int r = s->base && s->order ? dali_words(s, params->words, error) : -ENOMEM;
	if (r == 0 && clair_words_get(params->words, "records")) {
		r = clair_groups_init(&s->records, params, "records", error);
		s->checkpointing = true; /* containers always start from the first list */
		if (r == 0 && s->records.count != s->n)
			r = clair_bad(error, "records: a file with one number a container");
	} else if (r == 0 && s->n < s->world)
		r = clair_bad(error, "world=%u: DALI refuses more shards than files (%u)",
			      s->world, s->n);
	if (r < 0) {
		dali_close(s);
		return r;
	}
	clair_iota(s->base, s->n);
	if (s->random_shuffle) {
		struct clair_cxx_engine e;

		clair_cxx_seed(&e, CLAIR_CXX_MT19937, DALI_SEED, s->gcc);
		clair_cxx_shuffle(&e, s->base, s->n);
	}
	*out = s;
	return 0;
}

/* The list as it stands after reset number RESET (0, 1, …). */
static void dali_list(struct dali *s, uint64_t reset)
{
	struct clair_cxx_engine e;
	bool again = s->checkpointing || !s->after_epoch; /* from the original list */
	uint64_t k = again ? reset : s->at + 1;

	if (s->at == reset)
		return;
	if (again || s->at == UINT64_MAX || s->at > reset) {
		for (uint32_t i = 0; i < s->n; i++)
			s->order[i] = s->base[i];
		k = again ? reset : 0;
	}
	for (; s->after_epoch && k <= reset; k++) {
		if (s->version >= 2002000)
			clair_cxx_seed(&e, CLAIR_CXX_MT19937_64, s->seed + ((k + 1) << 32), 11);
		else
			clair_cxx_seed(&e, CLAIR_CXX_MT19937, s->seed + k + 1, s->gcc);
		clair_cxx_shuffle(&e, s->order, s->n);
	}
	s->at = reset;
}

/* A shard is a part of all records; the files that they lie in, in the list's order. */
static int dali_containers(const struct dali *s, uint64_t shard, struct clair_indices *out)
{
	uint64_t low = shard * s->records.total / s->world, at = 0;
	uint64_t high = (shard + 1) * s->records.total / s->world;
	int r = 0;

	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		uint64_t end = at + s->records.size[s->order[i]];

		if (end > at && at < high && end > low)
			r = clair_indices_append(out, s->order[i]);
		at = end;
	}
	return r;
}

static int dali_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct dali *s = p;
	uint64_t shard = rank, reset = epoch;

	if (!s->stick && !s->after_epoch) {
		/* the shard moves on by one; the list is reset when it wraps */
		shard = (rank + epoch) % s->world;
		reset = (rank + epoch) / s->world;
	}
	dali_list(s, reset);
	if (s->records.count)
		return dali_containers(s, shard, out);
	return clair_take(CLAIR_TAKE_BLOCK, s->order, s->n, s->world, (uint32_t)shard, out);
}

static const struct clair_family_word dali_family_words[] = {
	{ "dali", "2.4", "DALI's version" },
	{ "random_shuffle", "0", "as the reader's argument" },
	{ "shuffle_after_epoch", "0", "as the reader's argument" },
	{ "seed", "524287", "shuffle_after_epoch_seed (2.1.1 and later)" },
	{ "stick_to_shard", "0", "as the reader's argument" },
	{ "checkpointing", "0", "1: enable_checkpointing, each epoch from the first list" },
	{ "records", "", "readers.tfrecord, .webdataset: a file with the records of each" },
	{ "gcc", "", "compiler of the wheel: 10 or 11 (by the version)" },
	{ NULL },
};

const struct clair_family clair_family_dali_file = {
	.name = "dali-file",
	.help = "nvidia.dali.fn.readers.file, .numpy, .tfrecord, .webdataset (rank = shard_id)",
	.versions = "1.23 to 2.4",
	.words = dali_family_words,
	.open = dali_open,
	.epoch = dali_epoch,
	.close = dali_close,
};

/* ---- NoPFS */

struct nopfs {
	uint32_t n, world, batch;
	bool drop_last;
	uint64_t seed;
	int gcc;
	uint64_t at;
	struct clair_cxx_engine engine;
	uint32_t *order;
};

static void nopfs_close(void *p)
{
	struct nopfs *s = p;

	if (!s)
		return;
	free(s->order);
	free(s);
}

static int nopfs_open(const struct clair_order_params *params, void **out, char **error)
{
	struct nopfs *s = calloc(1, sizeof *s);
	uint64_t batch = 0, gcc = 0;

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->at = UINT64_MAX;
	s->order = malloc(((size_t)s->n + 1) * sizeof *s->order);
	int r = s->order ? 0 : -ENOMEM;
	if (r == 0)
		r = clair_words_u64(params->words, "seed", 1, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", s->world, UINT32_MAX, &batch,
				     error);
	if (r == 0)
		r = clair_words_bool(params->words, "drop_last", false, &s->drop_last, error);
	if (r == 0)
		r = clair_words_uint(params->words, "gcc", 12, 99, &gcc, error);
	if (r == 0 && batch == 0)
		r = clair_bad(error, "batch=0: the job's global batch is at least 1");
	if (r < 0) {
		nopfs_close(s);
		return r;
	}
	s->batch = (uint32_t)batch;
	s->gcc = (int)gcc;
	*out = s;
	return 0;
}

static int nopfs_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct nopfs *s = p;
	uint64_t local = ((uint64_t)s->batch + s->world - 1) / s->world;
	uint64_t end = s->drop_last ? s->n - s->n % s->batch : s->n;
	int r = 0;

	if (s->at == UINT64_MAX || s->at > epoch) {
		clair_cxx_seed(&s->engine, CLAIR_CXX_MINSTD0, s->seed, s->gcc);
		clair_iota(s->order, s->n);
		clair_cxx_shuffle(&s->engine, s->order, s->n);
		s->at = 0;
	}
	for (; s->at < epoch; s->at++)
		clair_cxx_shuffle(&s->engine, s->order, s->n);
	for (uint64_t start = 0; start < end && r == 0; start += s->batch) {
		uint64_t low = local * rank, high = low + local;

		if (high > s->batch)
			high = s->batch;
		if (start + high > s->n)
			high = s->n - start;
		if (low < high)
			r = clair_take_copy(s->order + start + low, (size_t)(high - low), out);
	}
	return r;
}

static const struct clair_family_word nopfs_words[] = {
	{ "seed", "1", "the job's seed" },
	{ "batch", "", "global batch (world when missing)" },
	{ "drop_last", "0", "1: without the short last batch" },
	{ "gcc", "12", "compiler of the library: 10 or later" },
	{ NULL },
};

const struct clair_family clair_family_nopfs = {
	.name = "nopfs",
	.help = "NoPFS: the list is shuffled on and on, global batches cut among ranks",
	.versions = "",
	.words = nopfs_words,
	.open = nopfs_open,
	.epoch = nopfs_epoch,
	.close = nopfs_close,
};
