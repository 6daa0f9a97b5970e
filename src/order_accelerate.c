/* SPDX-License-Identifier: BSD-3-Clause */
/* Hugging Face Accelerate's prepared DataLoader(shuffle=True), and the Trainer on top
 * of it. All processes permute alike; batches go round them. */
#include "order_accelerate.h"

#include <errno.h>
#include <stdlib.h>

#include "order_groups.h"
#include "order_take.h"
#include "torch_draw.h"

#define V0_25 25000u
#define V0_27 27000u

/* Where an epoch's permutation comes from. */
enum source {
	SEQUENTIAL,
	SEEDABLE,  /* G(seed + epoch) */
	EXPLICIT,  /* one generator of the user's, base seed and two permutations an
	              epoch */
	DEFAULT,   /* one process: a plain loader */
	BROADCAST, /* several: a generator seeded once from the default one */
	LENGTHS,   /* Trainer's group_by_length */
};

struct state {
	enum source source;
	struct clair_batch_shard shard;
	uint32_t n, version;
	bool dispatch;
	uint64_t seed, skip, stride;
	uint64_t group;    /* samples a step, for LENGTHS */
	uint64_t *lengths; /* owned */
	struct clair_torch_walk walk;
	uint32_t *order; /* of MADE - 1; owned */
	uint64_t made;
};

static void accelerate_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	free(s->lengths);
	free(s->order);
	free(s);
}

/* The words that both families have. */
static int read_words(struct state *s, const struct clair_order_params *params,
                      char **error)
{
	const struct clair_words *w = params->words;
	uint64_t batch = 0;
	bool shuffle = true;

	s->n = params->n;
	s->shard.world = params->world;
	int r = clair_words_uint(w, "batch", 0, UINT32_MAX, &batch, error);
	if (r == 0)
		r = clair_words_bool(w, "drop_last", false, &s->shard.drop_last, error);
	if (r == 0)
		r = clair_words_bool(w, "split_batches", false, &s->shard.split, error);
	if (r == 0)
		r = clair_words_bool(w, "even_batches", true, &s->shard.even, error);
	if (r == 0)
		r = clair_words_bool(w, "dispatch", false, &s->dispatch, error);
	if (r == 0)
		r = clair_words_bool(w, "shuffle", true, &shuffle, error);
	if (r == 0)
		r = clair_torch_skip_word(w, &s->skip, error);
	if (r == 0)
		r = clair_version_word(w, "version", "1.15", &s->version, error);
	if (r < 0)
		return r;
	if (!batch && (params->world > 1 || s->shard.drop_last) && !s->dispatch)
		return clair_bad(
		    error, "batch is needed: batches of that many samples go round "
		           "the processes, such as batch=32");
	if (s->shard.split && batch % params->world)
		return clair_bad(
		    error,
		    "batch=%u: with split_batches=1 it must be a multiple of "
		    "world=%u",
		    (unsigned)batch, params->world);
	s->shard.batch = batch ? (uint32_t)batch : 1;
	if (!shuffle)
		s->source = SEQUENTIAL;
	s->order = malloc(sizeof *s->order * (s->n + 1ul));
	return s->order ? 0 : -ENOMEM;
}

static void stand(struct state *s)
{
	struct clair_torch_walk first;

	if (s->source == BROADCAST) {
		clair_torch_walk_init(&first, s->seed);
		s->seed = clair_torch_walk_u32(&first, s->skip + 1);
	}
	clair_torch_walk_init(&s->walk, s->seed);
}

static int accelerate_open(const struct clair_order_params *params, void **out,
                           char **error)
{
	const struct clair_words *w = params->words;
	struct state *s = calloc(1, sizeof *s);
	bool seedable = false, generator = false;

	if (!s)
		return -ENOMEM;
	s->source = DEFAULT;
	int r = read_words(s, params, error);
	if (r == 0)
		r = clair_words_u64(w, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_words_bool(w, "seedable", false, &seedable, error);
	if (r == 0)
		r = clair_words_bool(w, "generator", false, &generator, error);
	if (r == 0 && seedable)
		r = clair_words_u64(w, "data_seed", s->seed, &s->seed, error);
	if (r == 0)
		r = clair_words_uint(w, "stride", 4, UINT32_MAX, &s->stride, error);
	if (r < 0) {
		accelerate_close(s);
		return r;
	}
	if (s->source != SEQUENTIAL) {
		s->source = seedable                            ? SEEDABLE
		            : generator                         ? EXPLICIT
		            : params->world > 1 && !s->dispatch ? BROADCAST
		                                                : DEFAULT;
	}
	stand(s);
	*out = s;
	return 0;
}

static int read_lengths(struct state *s, const struct clair_order_params *params,
                        char **error)
{
	const char *file = clair_words_get(params->words, "lengths");
	uint64_t steps = 1;
	size_t count = 0;

	int r =
	    clair_words_uint(params->words, "grad_accum", 1, 1u << 20, &steps, error);
	if (r < 0)
		return r;
	s->group = s->shard.batch * (steps ? steps : 1);
	if (file) {
		r = clair_groups_read(file, UINT64_MAX, &s->lengths, &count, error);
		if (r == 0 && count != s->n)
			r = clair_bad(
			    error,
			    "lengths=%s: %zu lines; one a sample, %u, are needed", file,
			    count, s->n);
		return r;
	}
	if (!params->sizes)
		return clair_bad(error,
		                 "strategy=group_by_length: it needs lengths=FILE, a "
		                 "sample's length a line");
	s->lengths = malloc(sizeof *s->lengths * (s->n + 1ul));
	if (!s->lengths)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->n; i++)
		s->lengths[i] = params->sizes[i];
	return 0;
}

static int hf_trainer_open(const struct clair_order_params *params, void **out,
                           char **error)
{
	static const char *const strategies[] = {"random", "sequential",
	                                         "group_by_length", NULL};
	const struct clair_words *w = params->words;
	struct state *s = calloc(1, sizeof *s);
	bool seedable = true;
	unsigned strategy = 0;

	if (!s)
		return -ENOMEM;
	s->source = SEEDABLE;
	s->stride = 4;
	int r = read_words(s, params, error);
	if (r == 0)
		r = clair_words_u64(w, "seed", 42, &s->seed, error);
	if (r == 0)
		r = clair_words_bool(w, "seedable", true, &seedable, error);
	if (r == 0 && seedable)
		r = clair_words_u64(w, "data_seed", s->seed, &s->seed, error);
	if (r == 0)
		r = clair_name_word(w, "strategy", strategies, 0, &strategy, error);
	if (r == 0 && strategy == 2)
		r = read_lengths(s, params, error);
	if (r < 0) {
		accelerate_close(s);
		return r;
	}
	if (strategy == 2)
		s->source = LENGTHS;
	else if (strategy == 1)
		s->source = SEQUENTIAL;
	else if (s->source == SEEDABLE && !seedable)
		s->source = params->world > 1 && !s->dispatch ? BROADCAST : DEFAULT;
	stand(s);
	*out = s;
	return 0;
}

static int by_length(const void *a, const void *b, void *arg)
{
	const uint32_t *x = a, *y = b; /* places in the permutation: a stable order */
	const struct state *s = arg;
	uint64_t p = s->lengths[s->order[*x]], q = s->lengths[s->order[*y]];

	if (p != q)
		return p > q ? -1 : 1;
	return *x < *y ? -1 : *x > *y;
}

/* The permutation in pieces of many batches, each sorted by falling length; the longest
 * sample of all comes first, so that memory runs out at once if at all. */
static int group_by_length(struct state *s)
{
	uint64_t most = s->n / (s->group * 4), piece;
	uint32_t *place = malloc(sizeof *place * (s->n + 1ul));
	uint64_t top = 0;

	if (!place)
		return -ENOMEM;
	most = most > 50 ? 50 : most ? most : 1;
	piece = most * s->group;
	for (uint32_t i = 0; i < s->n; i++)
		place[i] = i;
	for (uint64_t i = 0; i < s->n; i += piece) {
		uint64_t count = s->n - i < piece ? s->n - i : piece;

		qsort_r(place + i, count, sizeof *place, by_length, s);
		if (s->lengths[s->order[place[i]]] > s->lengths[s->order[place[top]]])
			top = i;
	}
	if (s->n) {
		uint32_t t = place[0];

		place[0] = place[top];
		place[top] = t;
	}
	for (uint32_t i = 0; i < s->n; i++)
		place[i] = s->order[place[i]];
	free(s->order);
	s->order = place;
	return 0;
}

/* How a version turned the epoch into a seed. */
static uint64_t seedable_seed(const struct state *s, uint64_t epoch)
{
	if (s->version < V0_25)
		return epoch;
	if (s->version < V0_27)
		return s->seed + epoch * (epoch + 1) / 2;
	return s->seed + epoch;
}

static int permute(struct state *s, uint64_t epoch)
{
	uint64_t one = clair_torch_randperm_draws(s->n);
	struct clair_torch_walk own;

	switch (s->source) {
	case SEQUENTIAL:
		for (uint32_t i = 0; i < s->n; i++)
			s->order[i] = i;
		return 0;
	case SEEDABLE:
		clair_torch_walk_init(&own, seedable_seed(s, epoch));
		clair_torch_walk_perm(&own, 0, s->n, s->order);
		return 0;
	case EXPLICIT:
		clair_torch_walk_perm(&s->walk,
		                      s->skip + 2 * (epoch + 1) + 2 * one * epoch, s->n,
		                      s->order);
		return 0;
	case BROADCAST:
		clair_torch_walk_perm(&s->walk, 2 * one * epoch, s->n, s->order);
		return 0;
	case DEFAULT:
		clair_torch_walk_init(
		    &own,
		    clair_torch_walk_u32(&s->walk, s->skip + 3 + s->stride * epoch));
		clair_torch_walk_perm(&own, 0, s->n, s->order);
		return 0;
	case LENGTHS:
		clair_torch_walk_perm(&s->walk, s->skip + 2 * (epoch + 1) + one * epoch,
		                      s->n, s->order);
		return group_by_length(s);
	}
	return -EINVAL;
}

static int accelerate_epoch(void *p, uint64_t epoch, uint32_t rank,
                            struct clair_indices *out)
{
	struct state *s = p;
	uint32_t n = s->n;

	if (s->dispatch && rank > 0)
		return 0; /* rank 0 reads for all */
	if (s->made != epoch + 1) {
		s->made = 0;
		int r = permute(s, epoch);
		if (r < 0)
			return r;
		s->made = epoch + 1;
	}
	if (s->dispatch || s->shard.world == 1) {
		if (s->shard.drop_last)
			n -= n % s->shard.batch;
		return clair_take_copy(s->order, n, out);
	}
	return clair_batch_shard(&s->shard, s->order, n, rank, out);
}

#define SHARD_WORDS                                                                    \
	{"batch", "", "samples a process and step; needed with several processes"},    \
	    {"drop_last", "0", "1: a short last batch is left out"},                   \
	    {"split_batches", "0", "1: batch is that of all processes together"},      \
	    {"even_batches", "1", "0: the last round is not filled up"},               \
	    {"dispatch", "0", "1: process 0 reads for all"},                           \
	    {"shuffle", "1", "0: in order"}, CLAIR_TORCH_SKIP_WORDS,                   \
	{                                                                              \
		"version", "1.15",                                                     \
		    "of accelerate; what changed (seedable): 0.25, 0.27"               \
	}

static const struct clair_family_word words[] = {
    {"seed", "0", "of torch.manual_seed (of process 0)"},
    {"seedable", "0", "1: use_seedable_sampler"},
    {"data_seed", "", "with seedable=1: takes the seed's place"},
    {"generator", "0", "1: seed is that of the loader's own generator"},
    {"stride", "4", "one process: u32 of the default generator an epoch"},
    SHARD_WORDS,
    {NULL},
};

static const struct clair_family_word trainer_words[] = {
    {"seed", "42",
     "TrainingArguments.seed, or the last torch.manual_seed before train()"},
    {"data_seed", "", "TrainingArguments.data_seed"},
    {"seedable", "1", "0: use_seedable_sampler=False"},
    {"strategy", "random", "random, sequential, group_by_length"},
    {"lengths", "", "group_by_length: file with a sample's length a line"},
    {"grad_accum", "1", "group_by_length: gradient_accumulation_steps"},
    SHARD_WORDS,
    {NULL},
};

const struct clair_family clair_family_accelerate = {
    .name = "accelerate",
    .help = "accelerate's prepare(DataLoader(shuffle=True)), batches go round the "
            "processes",
    .versions = "accelerate >= 0.24",
    .words = words,
    .open = accelerate_open,
    .epoch = accelerate_epoch,
    .close = accelerate_close,
};

const struct clair_family clair_family_hf_trainer = {
    .name = "hf-trainer",
    .help = "transformers.Trainer's train loader",
    .versions = "",
    .words = trainer_words,
    .open = hf_trainer_open,
    .epoch = accelerate_epoch,
    .close = accelerate_close,
};
