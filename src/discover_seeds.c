/* SPDX-License-Identifier: BSD-3-Clause */
/* torch's seeds: by range, as a rank of an unknown world, as draws of the default generator. */
#include "discover_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "mt19937.h"
#include "seed_search.h"
#include "torch_draw.h"

#define NONE CLAIR_DISCOVER_NONE
/* Entries of a permutation that are held against the threads' sequences. */
#define LOOKED_AT 4096
#define HITS 64
#define SMALL (1u << 20)
#define WORLDS 64
/* How far the default generator may have been drawn from: after its seed, after a model, whose
 * last layer may have been replaced. */
#define EARLY_DRAWS 4096
#define MODEL_DRAWS 8192
#define MODELS 64
#define FEW_GENERATORS 4
/* Epochs of a sampler that may be the running one. */
#define EPOCHS 3

/* --- guesses ------------------------------------------------------------------------------- */

/* What one target of the search stands for. */
struct guess {
	const struct trial *trial;
	struct numbering *n;
	double extra;
	int (*prefix)(const struct clair_seed_target *t, uint32_t seed, uint32_t count,
		      uint32_t *entries);
};

static int torch_prefix(const struct clair_seed_target *t, uint32_t seed, uint32_t count,
			uint32_t *entries)
{
	return clair_seed_prefix(seed, t->n, t->skip, count, entries);
}

static int python_prefix(const struct clair_seed_target *t, uint32_t seed, uint32_t count,
			 uint32_t *entries)
{
	return clair_python_prefix(seed, t->n, count, entries);
}

struct guesses {
	struct clair_seed_target *targets;
	struct guess *guesses; /* beside them */
	size_t count;
};

static void guesses_finish(struct guesses *g)
{
	free(g->targets);
	free(g->guesses);
}

static uint32_t rank_entries(const struct clair_seed_target *t)
{
	uint32_t count = t->n < LOOKED_AT ? t->n : LOOKED_AT;

	return count > t->rank ? (count - t->rank + t->world - 1) / t->world : 0;
}

/* A seed whose first entries were among the threads' first: do they follow it? */
static bool follows(void *arg, const struct clair_seed_target *t, uint32_t seed)
{
	const struct guess *g = arg;
	uint32_t count = t->n < LOOKED_AT ? t->n : LOOKED_AT, own = rank_entries(t);
	autofree uint32_t *entries = malloc(sizeof *entries * (count + 1ul));

	if (!entries || g->prefix(t, seed, count, entries) < 0)
		return false;
	for (uint32_t k = 0; k < own; k++)
		entries[k] = entries[t->rank + k * t->world];
	return clair_fit_digits(g->n, g->trial->opened, entries, own) >=
	       CLAIR_DISCOVER_DIGITS + g->extra;
}

static void add_target(struct guesses *g, const struct trial *t, struct numbering *n,
		       struct clair_seed_target target, double extra)
{
	struct guess *guess = &g->guesses[g->count];

	*guess = (struct guess){ t, n, extra, torch_prefix };
	target.n = n->count;
	target.arg = guess;
	/* By what was opened at all. */
	target.opened = n->bits;
	target.first = n->soon;
	target.prefix = clair_fit_entries(n, extra);
	if (target.prefix && target.rank < n->count &&
	    target.rank + (uint64_t)target.world * target.prefix <= CLAIR_SEED_PREFIX)
		g->targets[g->count++] = target;
	if (!clair_fit_early(n, t->opened, extra) ||
	    target.rank + (uint64_t)target.world * CLAIR_EARLY > n->count)
		return;
	/* By the threads' sequences. */
	g->guesses[g->count] = *guess;
	target.arg = &g->guesses[g->count];
	target.opened = n->early;
	target.first = NULL;
	target.prefix = CLAIR_EARLY;
	target.sure = follows;
	g->targets[g->count++] = target;
}

/* Room for MOST targets, each in two ways. */
static int guesses_init(struct guesses *g, size_t most)
{
	*g = (struct guesses){ .targets = calloc(most, 2 * sizeof *g->targets),
			       .guesses = calloc(most, 2 * sizeof *g->guesses) };
	if (g->targets && g->guesses)
		return 0;
	guesses_finish(g);
	return -ENOMEM;
}

/* --- answers --------------------------------------------------------------------------------- */

/* Which ranks of the world opened what SEED's permutation has for them: RANKS, "0,2". */
static int find_ranks(struct trial *t, uint32_t seed, char *ranks, size_t size)
{
	const struct numbering *n = t->n;
	uint32_t needed = clair_fit_entries(n, log10(t->world));
	uint32_t count = n->count < CLAIR_SEED_PREFIX ? n->count : CLAIR_SEED_PREFIX;
	autofree uint32_t *entries = malloc(sizeof *entries * count);
	size_t length = 0;

	if (!entries || clair_seed_prefix(seed, n->count, 0, count, entries) < 0)
		return -ENOMEM;
	ranks[0] = '\0';
	for (uint32_t r = 0; r < t->world && r < count && length + 12 < size; r++) {
		uint32_t k = 0;
		while (k < needed && r + (uint64_t)k * t->world < count &&
		       n->first[entries[r + k * t->world]] != NONE)
			k++;
		if ((needed && k == needed) || r == t->rank)
			length += (size_t)snprintf(ranks + length, size - length, "%s%u",
						   length ? "," : "", r);
	}
	return 0;
}

/* Two seeds in a row that do not count up: are both draws of a usual default generator? By
 * accident with a chance of 10^-9 over all that is looked at. */
#define NEAR_DRAWS 65536u
#define NEAR_DISTANCE 2048u
#define FAR_DRAWS 200000000u
#define FAR_DISTANCE 16u

struct draws {
	uint64_t seed, at, distance;
};

/* Of one generator: before draw END, at most FARTHEST apart, by a multiple of UNIT. */
static bool find_draws_of(const struct trial *t, uint32_t first, uint32_t second, uint64_t end,
			  uint64_t farthest, uint64_t unit, struct draws *draws)
{
	uint64_t seen = UINT64_MAX;
	struct clair_mt mt;

	clair_mt_seed(&mt, (uint32_t)draws->seed);
	for (uint64_t k = 0; k < end; k++) {
		uint32_t u = clair_mt_u32(&mt);
		if (k % (1u << 24) == 0 && atomic_load(&t->d->cancel))
			return false;
		if (u == first)
			seen = k;
		if (u != second || seen >= k || k - seen > farthest || (k - seen) % unit)
			continue;
		draws->at = k;
		draws->distance = k - seen;
		return true;
	}
	return false;
}

static bool find_draws(const struct trial *t, uint32_t first, uint32_t second,
		       struct draws *draws)
{
	for (size_t i = 0; i < clair_usual_seed_count; i++) {
		draws->seed = clair_usual_seeds[i];
		if (find_draws_of(t, first, second, NEAR_DRAWS, NEAR_DISTANCE, 1, draws))
			return true;
	}
	for (size_t i = 0; i < FEW_GENERATORS; i++) {
		draws->seed = clair_usual_seeds[i];
		if (find_draws_of(t, first, second, FAR_DRAWS, FAR_DISTANCE, 2, draws))
			return true;
	}
	return false;
}

/* RandomSampler without a generator: draw number AT of the default one, which
 * torch.manual_seed(SEED) had seeded, is this epoch's seed. */
static bool answer_draw(struct trial *t, uint64_t seed, uint64_t at, uint64_t stride)
{
	struct clair_discover *d = t->d;

	if (at < 3)
		return false;
	/* Base seed and seed, an epoch, when nothing else draws. */
	if (!stride)
		stride = d->has_last_draw && d->last_generator == seed && at > d->last_draw ?
				 at - d->last_draw :
				 4;
	d->has_last_draw = true;
	d->last_generator = seed;
	d->last_draw = at;
	return clair_trial_answer(t, "torch-default", seed, true) == 0 &&
	       clair_trial_number(t->words, "skip", at - 3) == 0 &&
	       clair_trial_number(t->words, "stride", stride) == 0;
}

static bool answer_seed(struct trial *t, uint32_t seed)
{
	struct clair_discover *d = t->d;
	uint32_t last = d->last_seed;
	/* A small seed was given by somebody, and counts up. */
	bool stranger = d->has_last_seed && seed >= SMALL && last >= SMALL && seed != last &&
			seed != last + 1;
	struct draws draws;
	char ranks[512];

	d->has_last_seed = true;
	d->last_seed = seed;
	if (stranger && t->world == 1 &&
	    find_draws(t, last, seed, &draws) &&
	    answer_draw(t, draws.seed, draws.at, draws.distance))
		return true;
	/* -1 is what detectron2's configuration has by itself. */
	bool none = seed == UINT32_MAX;
	if (clair_trial_answer(t, none ? "detectron2" : "torch-distributed", seed, true) < 0)
		return false;
	if (t->world > 1 && !clair_words_get(&d->given, "ranks") &&
	    (find_ranks(t, seed, ranks, sizeof ranks) < 0 ||
	     clair_words_set(t->words, "ranks", ranks) < 0))
		return false;
	/* Seeds that do not count up are drawn anew each epoch: what follows this one is
	 * not known. */
	return !stranger || none || clair_trial_number(t->words, "epochs", 1) == 0;
}

/* --- searches -------------------------------------------------------------------------------- */

/* How many worlds and ranks there are from FROM to TO. */
static size_t pairs(uint32_t from, uint32_t to)
{
	size_t count = 0;

	for (uint32_t w = from; w <= to; w++)
		count += w;
	return count;
}

static void add_worlds(struct guesses *g, const struct trial *t, struct numbering *n,
		       uint32_t worlds, double extra)
{
	struct clair_seed_target target = { .world = t->world, .rank = t->rank };

	if (worlds > 1) {
		for (target.world = 2; target.world <= worlds; target.world++)
			for (target.rank = 0; target.rank < target.world; target.rank++)
				add_target(g, t, n, target, extra);
		return;
	}
	add_target(g, t, n, target, extra);
	/* Each process may read everything, whatever the world is. */
	target.world = 1;
	target.rank = 0;
	if (t->world > 1)
		add_target(g, t, n, target, extra);
	/* RandomSampler with a generator of its own: two draws come first. */
	target.skip = 2;
	add_target(g, t, n, target, extra);
}

bool clair_try_seeds(struct trial *t, size_t numberings, uint32_t worlds, uint64_t begin,
		     uint64_t end)
{
	size_t count = t->count < numberings ? t->count : numberings;
	size_t most = count * (worlds > 1 ? pairs(2, worlds) : 3), hits = 0;
	struct clair_seed_hit hit[HITS];
	struct guesses g;

	if (!count || guesses_init(&g, most) < 0)
		return false;
	double extra = log10((double)(end - begin) * 2. * (double)most);
	for (size_t i = 0; i < count; i++)
		add_worlds(&g, t, &t->all[i], worlds, extra);
	struct clair_seed_query q = { .targets = g.targets, .count = g.count, .begin = begin,
				      .end = end, .threads = t->d->config.threads,
				      .enough = 1, .cancel = &t->d->cancel };
	bool yes = g.count && clair_seed_search(&q, hit, HITS, &hits) == 0 && hits;
	if (yes) {
		/* The first: smaller worlds have fewer ways to fit by subsets of theirs. */
		const struct clair_seed_target *target = &g.targets[hit[0].target];
		t->n = g.guesses[hit[0].target].n;
		t->world = target->world;
		t->rank = target->rank;
		yes = target->skip ? clair_trial_answer(t, "torch-random", hit[0].seed, true) ==
					     0 :
				     answer_seed(t, hit[0].seed);
	}
	guesses_finish(&g);
	return yes;
}

static bool is_rank(const struct numbering *n, const uint32_t *entries, uint32_t count,
		    uint32_t world, uint32_t rank, uint32_t needed)
{
	if (!needed || rank + (uint64_t)world * (needed - 1) >= count)
		return false;
	for (uint32_t k = 0; k < needed; k++)
		if (n->first[entries[rank + k * world]] == NONE)
			return false;
	return true;
}

/* One permutation, all worlds. */
static bool try_ranks(struct trial *t, const uint32_t *entries, uint32_t count, double extra)
{
	uint32_t needed = clair_fit_entries(t->n, extra);

	for (uint32_t w = 2; w <= WORLDS; w++) {
		for (uint32_t r = 0; r < w; r++) {
			if (!is_rank(t->n, entries, count, w, r, needed))
				continue;
			t->world = w;
			t->rank = r;
			return true;
		}
	}
	return false;
}

bool clair_try_worlds(struct trial *t)
{
	size_t seeds = clair_usual_seed_count * EPOCHS;
	double extra = log10((double)(seeds * t->count * pairs(2, WORLDS)));

	for (size_t i = 0; i < t->count; i++) {
		t->n = &t->all[i];
		uint32_t count = t->n->count < CLAIR_SEED_PREFIX ? t->n->count :
								   CLAIR_SEED_PREFIX;
		autofree uint32_t *entries = malloc(sizeof *entries * (count + 1ul));
		if (!entries || !clair_fit_entries(t->n, extra))
			continue;
		for (size_t k = 0; k < seeds && !atomic_load(&t->d->cancel); k++) {
			uint32_t seed = (uint32_t)(clair_usual_seeds[k / EPOCHS] + k % EPOCHS);
			if (clair_seed_prefix(seed, t->n->count, 0, count, entries) == 0 &&
			    try_ranks(t, entries, count, extra))
				return answer_seed(t, seed);
		}
	}
	return false;
}

static bool try_draws(struct trial *t, size_t numberings, size_t seeds,
		      const struct clair_seed_span *spans, size_t span_count)
{
	size_t count = t->count < numberings ? t->count : numberings;
	double draws = 0;
	struct clair_seed_hit hit;
	struct guesses g;
	bool yes = false;

	if (t->world != 1 || !count || guesses_init(&g, count) < 0)
		return false;
	for (size_t i = 0; i < span_count; i++)
		draws += (double)(spans[i].end - spans[i].begin);
	double extra = log10(draws * (double)seeds * 2. * (double)count);
	for (size_t i = 0; i < count; i++)
		add_target(&g, t, &t->all[i], (struct clair_seed_target){ .world = 1 }, extra);
	struct clair_seed_query q = { .targets = g.targets, .count = g.count, .threads = 1,
				      .cancel = &t->d->cancel };
	for (size_t i = 0; g.count && i < seeds && !yes && !atomic_load(&t->d->cancel); i++) {
		uint64_t at = 0;
		if (clair_seed_walk(&q, (uint32_t)clair_usual_seeds[i], spans, span_count, &at,
				    &hit) < 0)
			continue;
		t->n = g.guesses[hit.target].n;
		yes = answer_draw(t, clair_usual_seeds[i], at, 0);
	}
	guesses_finish(&g);
	return yes;
}

bool clair_try_early_draws(struct trial *t)
{
	static const struct clair_seed_span early = { 0, EARLY_DRAWS };

	return try_draws(t, t->count, clair_usual_seed_count, &early, 1);
}

static int by_begin(const void *a, const void *b)
{
	const struct clair_seed_span *x = a, *y = b;

	return x->begin < y->begin ? -1 : x->begin > y->begin;
}

bool clair_try_model_draws(struct trial *t, size_t numberings)
{
	struct clair_seed_span spans[MODELS];
	size_t count = 0, joined = 0;
	const char *name;

	for (unsigned i = 0; count < MODELS && (name = clair_torch_model_at(i)); i++) {
		uint64_t draws = clair_torch_model_draws(name);
		spans[count++] = (struct clair_seed_span){ draws, draws + MODEL_DRAWS };
	}
	qsort(spans, count, sizeof *spans, by_begin);
	for (size_t i = 0; i < count; i++) {
		if (joined && spans[i].begin <= spans[joined - 1].end)
			spans[joined - 1].end = spans[i].end;
		else
			spans[joined++] = spans[i];
	}
	return try_draws(t, numberings, FEW_GENERATORS, spans, joined);
}

bool clair_try_python(struct trial *t)
{
	const uint64_t all = 1ull << 32;
	struct clair_seed_hit hit[HITS];
	struct guesses g;
	size_t hits = 0;

	if (!t->count || guesses_init(&g, t->count) < 0)
		return false;
	double extra = log10((double)all * 2. * (double)t->count);
	for (size_t i = 0; i < t->count; i++)
		add_target(&g, t, &t->all[i], (struct clair_seed_target){ .world = 1 }, extra);
	for (size_t i = 0; i < g.count; i++)
		g.guesses[i].prefix = python_prefix;
	struct clair_seed_query q = { .targets = g.targets, .count = g.count, .end = all,
				      .threads = t->d->config.threads, .enough = 1,
				      .cancel = &t->d->cancel };
	bool yes = g.count && clair_python_search(&q, hit, HITS, &hits) == 0 && hits;
	if (yes) {
		t->n = g.guesses[hit[0].target].n;
		t->world = 1;
		t->rank = 0;
		yes = clair_trial_answer(t, "fastai-chain", hit[0].seed, true) == 0;
	}
	guesses_finish(&g);
	return yes;
}
