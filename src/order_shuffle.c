/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole lists shuffled by NumPy's or Python's generators: what most loops outside torch
 * do by hand, and Horovod's and FFCV's samplers, which are the same with other defaults. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "numpy_random.h"
#include "order_take.h"
#include "python_random.h"

enum generator { RANDOM_STATE, GENERATOR, PYTHON, PYTHON2, SAMPLE };

struct state {
	uint32_t n, world;
	enum generator generator;
	enum clair_take take;
	bool shuffle, per_epoch, cumulative;
	uint64_t seed;
	bool negative;
	char *seed_text; /* Python's seed when it is no 64-bit number; owned */
	uint64_t at;     /* the epoch that ORDER is of, UINT64_MAX: none */
	struct clair_mt mt;
	struct clair_pcg64 pcg;
	uint32_t *order;
};

static void shuffle_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->order);
	free(s->seed_text);
	free(s);
}

/* HF datasets with seed=None: the next word of NumPy's global state, as it lies there;
 * each such call then draws a double. */
static int seed_from_numpy(struct state *s, const struct clair_words *words, char **error)
{
	uint64_t numpy = 0, doubles = 0;
	struct clair_mt mt;
	int r = clair_words_uint(words, "np_seed", 0, UINT32_MAX, &numpy, error);

	if (r == 0)
		r = clair_words_uint(words, "doubles", 0, UINT32_MAX, &doubles, error);
	clair_mt_seed(&mt, (uint32_t)numpy);
	clair_mt_skip(&mt, 2 * doubles);
	s->seed = mt.state[mt.next < CLAIR_MT_SIZE ? mt.next : 0];
	return r;
}

static int read_seed(struct state *s, const struct clair_words *words, char **error)
{
	const char *text = clair_words_get(words, "seed");
	bool python = s->generator >= PYTHON;
	char *ignored = NULL;

	if (!text && s->generator == GENERATOR && clair_words_get(words, "np_seed"))
		return seed_from_numpy(s, words, error);
	int r = clair_words_u64(words, "seed", 0, &s->seed, &ignored);

	s->negative = text && *text == '-';
	if (r == 0 && s->negative && !python)
		return clair_bad(error, "seed=%s: NumPy takes no negative seed", text);
	if (r == 0)
		return 0;
	if (!python || s->per_epoch || !text) {
		*error = ignored;
		return r;
	}
	free(ignored);
	s->seed_text = strdup(text);
	return s->seed_text ? 0 : -ENOMEM;
}

static int read_words(struct state *s, const struct clair_words *words,
		      enum clair_take take, char **error)
{
	int r = clair_words_bool(words, "per_epoch", true, &s->per_epoch, error);

	if (r == 0)
		r = clair_words_bool(words, "cumulative", false, &s->cumulative, error);
	if (r == 0)
		r = clair_words_bool(words, "shuffle", true, &s->shuffle, error);
	if (r == 0)
		r = clair_take_word(words, take, &s->take, error);
	if (r == 0)
		r = read_seed(s, words, error);
	return r;
}

static int open_as(const struct clair_order_params *params, enum generator generator,
		   enum clair_take take, void **out, char **error)
{
	struct state *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	s->world = params->world;
	s->generator = generator;
	s->at = UINT64_MAX;
	s->order = malloc(((size_t)s->n + 1) * sizeof *s->order);
	int r = s->order ? read_words(s, params->words, take, error) : -ENOMEM;
	if (r < 0) {
		shuffle_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int seed_generator(struct state *s, uint64_t epoch)
{
	uint64_t seed = s->seed + (s->per_epoch ? epoch : 0);

	switch (s->generator) {
	case RANDOM_STATE:
		clair_mt_seed(&s->mt, (uint32_t)seed);
		return 0;
	case GENERATOR:
		clair_pcg64_seed(&s->pcg, seed);
		return 0;
	default:
		break;
	}
	if (s->seed_text) {
		int r = clair_py_seed_decimal(&s->mt, s->seed_text);

		return r == -EINVAL ? clair_py_seed_str(&s->mt, s->seed_text) : r;
	}
	if (s->negative && (int64_t)seed < 0)
		seed = -seed;
	clair_py_seed(&s->mt, seed);
	return 0;
}

/* ORDER becomes that of EPOCH, which follows the one that it is of unless PER_EPOCH. */
static int make(struct state *s, uint64_t epoch)
{
	int r = 0;

	if (s->per_epoch || epoch == 0)
		r = seed_generator(s, epoch);
	if (epoch == 0 || !s->cumulative)
		clair_iota(s->order, s->n);
	if (r < 0 || !s->shuffle)
		return r;
	switch (s->generator) {
	case RANDOM_STATE:
		clair_np_shuffle(&s->mt, s->order, s->n);
		break;
	case GENERATOR:
		clair_pcg64_shuffle(&s->pcg, s->order, s->n);
		break;
	case PYTHON:
		clair_py_shuffle(&s->mt, s->order, s->n);
		break;
	case PYTHON2:
		clair_py_shuffle2(&s->mt, s->order, s->n);
		break;
	case SAMPLE:
		r = clair_py_sample(&s->mt, s->n, s->n, s->order);
		break;
	}
	return r;
}

static int shuffle_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	uint64_t from = epoch;
	int r = 0;

	if (s->cumulative || !s->per_epoch)
		from = s->at == UINT64_MAX || s->at > epoch ? 0 : s->at + 1;
	else if (s->at == epoch)
		from = epoch + 1;
	for (uint64_t e = from; e <= epoch && r == 0; e++)
		r = make(s, e);
	s->at = r == 0 ? epoch : UINT64_MAX;
	return r < 0 ? r : clair_take(s->take, s->order, s->n, s->world, rank, out);
}

static const struct clair_family_word words[] = {
	{ "seed", "0", "the generator's seed (Python: also a text)" },
	{ "per_epoch", "1", "1: seeded with seed + epoch, 0: one generator for the run" },
	{ "cumulative", "0", "1: each epoch shuffles the order of the last one" },
	{ "shuffle", "1", "0: in dataset order" },
	{ "take", "stride", "a rank's part: all, stride, pad, drop, block, spread, block-pad" },
	{ NULL },
};

static const struct clair_family_word generator_words[] = {
	{ "seed", "0", "the generator's seed" },
	{ "np_seed", "", "HF datasets' shuffle(seed=None): np.random.seed()'s" },
	{ "doubles", "0", "np.random doubles drawn before (one by each unseeded shuffle)" },
	{ "per_epoch", "1", "1: seeded with seed + epoch, 0: one generator for the run" },
	{ "cumulative", "0", "1: each epoch shuffles the order of the last one" },
	{ "shuffle", "1", "0: in dataset order" },
	{ "take", "stride", "a rank's part: all, stride, pad, drop, block, spread, block-pad" },
	{ NULL },
};

#define SHUFFLE_FAMILY(id, title, generator, take, about, since)                        \
	static int id##_open(const struct clair_order_params *params, void **state,     \
			     char **error)                                              \
	{                                                                               \
		return open_as(params, generator, take, state, error);                  \
	}                                                                               \
	const struct clair_family clair_family_##id = {                                 \
		.name = title,                                                          \
		.help = about,                                                          \
		.versions = since,                                                      \
		.words = (generator) == GENERATOR ? generator_words : words,             \
		.open = id##_open,                                                      \
		.epoch = shuffle_epoch,                                                 \
		.close = shuffle_close,                                                 \
	};

SHUFFLE_FAMILY(numpy_randomstate, "numpy-randomstate", RANDOM_STATE, CLAIR_TAKE_STRIDE,
	       "np.random.RandomState(seed).permutation(n), np.random.seed + shuffle", "")
SHUFFLE_FAMILY(numpy_generator, "numpy-generator", GENERATOR, CLAIR_TAKE_STRIDE,
	       "np.random.default_rng(seed).permutation(n), HF datasets' shuffle(seed)",
	       "numpy >= 1.17")
SHUFFLE_FAMILY(python_shuffle, "python-shuffle", PYTHON, CLAIR_TAKE_STRIDE,
	       "random.Random(seed).shuffle(list(range(n)))", "Python >= 3.2")
SHUFFLE_FAMILY(python2_shuffle, "python2-shuffle", PYTHON2, CLAIR_TAKE_STRIDE,
	       "random.shuffle of Python 2, and shuffle(list, random)", "Python <= 3.10")
SHUFFLE_FAMILY(python_sample, "python-sample", SAMPLE, CLAIR_TAKE_STRIDE,
	       "random.Random(seed).sample(range(n), n)", "Python >= 3.2")
SHUFFLE_FAMILY(horovod, "horovod", PYTHON, CLAIR_TAKE_PAD,
	       "horovod.torch.elastic.ElasticSampler", "")
SHUFFLE_FAMILY(ffcv, "ffcv", GENERATOR, CLAIR_TAKE_STRIDE,
	       "ffcv OrderOption.RANDOM, one process", "")
