/* SPDX-License-Identifier: BSD-3-Clause */
/* Keras: image_/text_/audio_dataset_from_directory, the legacy DirectoryIterator, and
 * PyDataset in fit(). */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_take.h"
#include "order_tf.h"
#include "python_random.h"

/* ---- *_dataset_from_directory */

struct directory {
	uint32_t world, count, version;
	uint64_t pair[2], buffer, skip, step;
	uint32_t *paths; /* the static list: a part of the shuffled files */
	uint32_t *order; /* of epoch AT if MADE, of all ranks */
	uint64_t at;
	bool made;
};

static void directory_close(void *p)
{
	struct directory *s = p;

	if (!s)
		return;
	free(s->paths);
	free(s->order);
	free(s);
}

/* The list: shuffled once, then cut by validation_split. */
static int directory_list(struct directory *s, const struct clair_order_params *params,
			  uint64_t seed, char **error)
{
	static const char *const subsets[] = { "all", "training", "validation", NULL };
	const struct clair_words *words = params->words;
	uint32_t n = params->n;
	double split = 0;
	unsigned subset = 0;
	bool shuffle = true;
	int r = clair_words_double(words, "validation_split", 0, &split, error);

	if (r == 0)
		r = clair_name_word(words, "subset", subsets, 0, &subset, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &shuffle, error);
	if (r == 0 && !(split >= 0 && split < 1))
		r = clair_bad(error, "validation_split: a number between 0 and 1");
	if (r < 0)
		return r;
	autofree uint32_t *all = malloc(((size_t)n + 1) * sizeof *all);
	s->paths = malloc(((size_t)n + 1) * sizeof *s->paths);
	s->order = malloc(((size_t)n + 1) * sizeof *s->order);
	if (!all || !s->paths || !s->order)
		return -ENOMEM;
	struct clair_mt mt;
	clair_mt_seed(&mt, (uint32_t)seed);
	clair_iota(all, n);
	if (shuffle)
		clair_np_shuffle(&mt, all, n);
	else
		s->version = 0; /* the list as it is */
	uint32_t held = (uint32_t)(split * n), from = 0;
	s->count = n;
	if (subset == 1)
		s->count = held ? n - held : 0; /* as Python's paths[:-0] */
	if (subset == 2) {
		from = held ? n - held : 0;
		s->count = n - from;
	}
	for (uint32_t i = 0; i < s->count; i++)
		s->paths[i] = all[from + i];
	return 0;
}

/* Without seed= it is one of a million, drawn from NumPy's global generator. */
static int directory_seed(const struct clair_words *words, uint64_t *seed, char **error)
{
	uint64_t numpy = 0;
	struct clair_mt mt;
	int r = clair_words_uint(words, "np_seed", 0, UINT32_MAX, &numpy, error);

	if (r < 0 || clair_words_get(words, "seed") || !clair_words_get(words, "np_seed"))
		return r < 0 ? r : clair_words_uint(words, "seed", 0, UINT32_MAX, seed, error);
	clair_mt_seed(&mt, (uint32_t)numpy);
	*seed = clair_np_randint(&mt, 0, 1000000);
	return 0;
}

static int directory_words(struct directory *s, const struct clair_order_params *params,
			   char **error)
{
	const struct clair_words *words = params->words;
	uint64_t seed = 0, global = 0, batch = 32;
	bool fit = true;
	int r = directory_seed(words, &seed, error);

	if (r == 0)
		r = clair_words_u64(words, "global", 0, &global, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 32, UINT32_MAX, &batch, error);
	if (r == 0)
		r = clair_version_word(words, "keras", "3.15", &s->version, error);
	if (r == 0)
		r = clair_words_bool(words, "fit", true, &fit, error);
	if (r == 0)
		r = clair_words_u64(words, "skip", 0, &s->skip, error);
	if (r < 0)
		return r;
	s->buffer = batch ? 8 * batch : 1024;
	s->step = fit && s->version >= 3007000 ? 2 : 1;
	clair_tf_pair(clair_words_get(words, "global") != NULL, (int64_t)global, (int64_t)seed,
		      s->pair);
	return directory_list(s, params, seed, error);
}

static int directory_open(const struct clair_order_params *params, void **out, char **error)
{
	struct directory *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = directory_words(s, params, error);
	if (r < 0) {
		directory_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int directory_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct directory *s = p;
	const uint32_t *order = s->paths;
	uint64_t pair[2];
	int r = 0;

	if (s->version >= 3003000) {
		if (!s->made || s->at != epoch) {
			clair_tf_iterator_pair(s->pair, true, s->skip + epoch * s->step, pair);
			r = clair_tf_shuffle(pair, s->buffer, s->paths, s->count, s->order);
			s->at = epoch;
			s->made = r == 0;
		}
		order = s->order;
	}
	return r < 0 ? r : clair_take(CLAIR_TAKE_STRIDE, order, s->count, s->world, rank, out);
}

static const struct clair_family_word directory_family_words[] = {
	{ "seed", "0", "seed= of the function" },
	{ "np_seed", "", "np.random.seed()'s, for seed=None" },
	{ "global", "", "tf.random.set_seed()'s, when it was called" },
	{ "batch", "32", "batch_size, 0: None" },
	{ "validation_split", "0", "as the argument" },
	{ "subset", "all", "all, training, validation" },
	{ "keras", "3.15", "Keras' version (the order changed with 3.3, fit() with 3.7)" },
	{ "fit", "1", "1: read by fit(), 0: by a loop" },
	{ "skip", "0", "iterators made before the first epoch" },
	{ NULL },
};

const struct clair_family clair_family_keras_directory = {
	.name = "keras-directory",
	.help = "keras.utils.image_dataset_from_directory and its kin",
	.versions = "Keras 3, TensorFlow backend",
	.words = directory_family_words,
	.open = directory_open,
	.epoch = directory_epoch,
	.close = directory_close,
};

/* ---- ImageDataGenerator.flow_from_directory */

enum drive { DRIVE_NEXT, DRIVE_FIT, DRIVE_INDEX };

struct iterator {
	uint32_t n, batches;
	uint64_t batch, seed, doubles, np_seed, py_seed;
	bool has_seed, shuffle, fit_shuffle;
	unsigned drive;
	/* the position, before epoch NEXT (UINT64_MAX: nowhere) */
	uint64_t next, served;
	struct clair_mt np, py;
	bool have;
	uint32_t *perm, *asked;
};

static void iterator_close(void *p)
{
	struct iterator *s = p;

	if (!s)
		return;
	free(s->perm);
	free(s->asked);
	free(s);
}

static int iterator_words(struct iterator *s, const struct clair_words *words, char **error)
{
	static const char *const drives[] = { "next", "fit", "index", NULL };
	int r = clair_words_uint(words, "seed", 0, UINT32_MAX, &s->seed, error);

	s->has_seed = clair_words_get(words, "seed") != NULL;
	if (r == 0)
		r = clair_words_uint(words, "np_seed", 0, UINT32_MAX, &s->np_seed, error);
	if (r == 0)
		r = clair_words_u64(words, "python_seed", 0, &s->py_seed, error);
	if (r == 0)
		r = clair_words_uint(words, "batch", 32, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_uint(words, "doubles", 2, 1000, &s->doubles, error);
	if (r == 0)
		r = clair_name_word(words, "drive", drives, 0, &s->drive, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &s->shuffle, error);
	if (r == 0)
		r = clair_words_bool(words, "fit_shuffle", true, &s->fit_shuffle, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	return r;
}

static int iterator_open(const struct clair_order_params *params, void **out, char **error)
{
	struct iterator *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->next = UINT64_MAX;
	int r = iterator_words(s, params->words, error);
	if (r == 0) {
		s->batches = (uint32_t)((s->n + s->batch - 1) / s->batch);
		s->perm = malloc(((size_t)s->n + 1) * sizeof *s->perm);
		s->asked = malloc(((size_t)s->batches + 1) * sizeof *s->asked);
		r = s->perm && s->asked ? 0 : -ENOMEM;
	}
	if (r < 0) {
		iterator_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static void permute(struct iterator *s)
{
	if (s->shuffle)
		clair_np_permutation(&s->np, s->n, s->perm);
	else
		clair_iota(s->perm, s->n);
	s->have = true;
}

/* Batch I; NumPy's stream is seeded anew before each and used by the images' transforms. */
static int serve(struct iterator *s, uint32_t i, bool again, struct clair_indices *out)
{
	if (s->has_seed)
		clair_mt_seed(&s->np, (uint32_t)(s->seed + s->served));
	s->served++;
	if (again || !s->have)
		permute(s);
	uint64_t low = s->batch * i, high = low + s->batch < s->n ? low + s->batch : s->n;
	clair_mt_skip(&s->np, 2 * s->doubles * (high - low));
	return clair_take_copy(s->perm + low, (size_t)(high - low), out);
}

static int one_epoch(struct iterator *s, struct clair_indices *out)
{
	int r = 0;

	if (s->drive == DRIVE_FIT && s->next == 0) { /* fit() looks at two batches first */
		for (uint32_t i = 0; i < 2 && i < s->batches && r == 0; i++)
			r = serve(s, i, false, out);
		permute(s);
	}
	clair_iota(s->asked, s->batches);
	if (s->drive == DRIVE_FIT && s->fit_shuffle)
		clair_py_shuffle(&s->py, s->asked, s->batches);
	for (uint32_t i = 0; i < s->batches && r == 0; i++)
		r = serve(s, s->asked[i], s->drive == DRIVE_NEXT && i == 0, out);
	if (s->drive != DRIVE_NEXT)
		permute(s);
	s->next++;
	return r;
}

static int iterator_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct iterator *s = p;
	size_t before = out->count;
	int r = 0;

	(void)rank;
	if (s->n == 0)
		return 0;
	if (s->next == UINT64_MAX || s->next > epoch) {
		clair_mt_seed(&s->np, (uint32_t)s->np_seed);
		clair_py_seed(&s->py, s->py_seed);
		s->served = s->next = 0;
		s->have = false;
	}
	if (s->drive == DRIVE_NEXT && s->has_seed) { /* no need to walk there */
		s->next = epoch;
		s->served = epoch * s->batches;
	}
	while (s->next <= epoch && r == 0) {
		out->count = before;
		r = one_epoch(s, out);
	}
	return r;
}

static const struct clair_family_word iterator_family_words[] = {
	{ "seed", "", "seed= of flow_from_directory, when it was given" },
	{ "np_seed", "0", "np.random.seed()'s, without seed" },
	{ "python_seed", "0", "random.seed()'s, for drive=fit" },
	{ "batch", "32", "batch_size" },
	{ "doubles", "2", "np.random doubles that the transforms take for an image" },
	{ "drive", "next", "next, fit, index (by number, in turn)" },
	{ "shuffle", "1", "as the argument" },
	{ "fit_shuffle", "1", "fit(shuffle=…)" },
	{ NULL },
};

const struct clair_family clair_family_keras_iterator = {
	.name = "keras-iterator",
	.help = "ImageDataGenerator.flow_from_directory (DirectoryIterator)",
	.versions = "Keras 3, tf.keras 2",
	.words = iterator_family_words,
	.open = iterator_open,
	.epoch = iterator_epoch,
	.close = iterator_close,
};

/* ---- PyDataset (Sequence) in fit() */

struct pydataset {
	uint32_t n, batches;
	uint64_t batch, seed, spec, next;
	bool shuffle;
	struct clair_mt py;
	uint32_t *asked;
};

static void pydataset_close(void *p)
{
	struct pydataset *s = p;

	if (!s)
		return;
	free(s->asked);
	free(s);
}

static int pydataset_open(const struct clair_order_params *params, void **out, char **error)
{
	struct pydataset *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->next = UINT64_MAX;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", 1, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_uint(params->words, "spec", 2, 100, &s->spec, error);
	if (r == 0)
		r = clair_words_bool(params->words, "shuffle", true, &s->shuffle, error);
	if (r == 0 && s->batch == 0)
		r = clair_bad(error, "batch=0: it is at least 1");
	if (r == 0) {
		s->batches = (uint32_t)((s->n + s->batch - 1) / s->batch);
		s->asked = malloc(((size_t)s->batches + 1) * sizeof *s->asked);
		r = s->asked ? 0 : -ENOMEM;
	}
	if (r < 0) {
		pydataset_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int ask(const struct pydataset *s, uint32_t batch, struct clair_indices *out)
{
	int r = 0;

	for (uint64_t i = s->batch * batch; i < s->n && i < s->batch * (batch + 1) && r == 0; i++)
		r = clair_indices_append(out, (uint32_t)i);
	return r;
}

static int pydataset_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct pydataset *s = p;
	int r = 0;

	(void)rank;
	if (s->next == UINT64_MAX || s->next > epoch) {
		clair_py_seed(&s->py, s->seed);
		s->next = 0;
	}
	for (; s->next <= epoch; s->next++) {
		clair_iota(s->asked, s->batches);
		if (s->shuffle)
			clair_py_shuffle(&s->py, s->asked, s->batches);
	}
	for (uint32_t i = 0; epoch == 0 && i < s->spec && i < s->batches && r == 0; i++)
		r = ask(s, i, out);
	for (uint32_t i = 0; i < s->batches && r == 0; i++)
		r = ask(s, s->asked[i], out);
	return r;
}

static const struct clair_family_word pydataset_words[] = {
	{ "seed", "0", "random.seed()'s" },
	{ "batch", "1", "samples of a batch" },
	{ "spec", "2", "batches read before the first epoch (Keras 3.0: 1)" },
	{ "shuffle", "1", "fit(shuffle=…)" },
	{ NULL },
};

const struct clair_family clair_family_keras_pydataset = {
	.name = "keras-pydataset",
	.help = "keras.utils.PyDataset (Sequence) in fit()",
	.versions = "Keras 3, TensorFlow backend",
	.words = pydataset_words,
	.open = pydataset_open,
	.epoch = pydataset_epoch,
	.close = pydataset_close,
};
