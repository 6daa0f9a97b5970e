/* SPDX-License-Identifier: BSD-3-Clause */
/* What is tried, cheap things first. */
#include "discover_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index.h"
#include "sampler.h"
#include "split.h"

#define SMALL_SEEDS (1u << 20)
/* Epochs of a sampler that may be the running one. */
#define EPOCHS 3
/* Worlds that are thought of, by the price. */
#define SMALL_WORLDS 8
#define WORLDS 64
/* Numberings: all, those that dear things are tried with. */
#define NUMBERINGS 16
#define LIKELY 2
/* Samples above which whole shuffles are tried with a few seeds only. */
#define LARGE 200000
/* Above it splits would take too much memory: 12 bytes a sample and numbering. */
#define HUGE_SET (1u << 24)
/* Opens that can say anything. */
#define LEAST_OPENS 6

/* --- answers --------------------------------------------------------------------------------- */

int clair_trial_number(struct clair_words *words, const char *word, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return clair_words_set(words, word, text);
}

int clair_trial_answer(struct trial *t, const char *sampler, uint64_t seed, bool has_seed)
{
	clair_words_finish(t->words);
	int r = clair_words_copy(t->words, &t->d->given);

	clair_words_unset(t->words, "seed");
	if (r == 0)
		r = clair_words_set(t->words, "sampler", sampler);
	if (r == 0 && t->n->index)
		r = clair_words_set(t->words, "index", t->n->index);
	if (r == 0 && t->n->split)
		r = clair_words_set(t->words, "split", t->n->split);
	if (r == 0 && has_seed)
		r = clair_trial_number(t->words, "seed", seed);
	if (r == 0 && t->world > 1) {
		r = clair_trial_number(t->words, "world", t->world);
		if (r == 0 && !clair_words_get(t->words, "ranks"))
			r = clair_trial_number(t->words, "ranks", t->rank);
	}
	return r == 0 ? clair_words_set(t->words, "how", "found") : r;
}

/* --- numberings --------------------------------------------------------------------------- */

uint32_t clair_discover_folder(const struct clair_catalog *c, const uint32_t *ids,
			       size_t count)
{
	uint32_t folder = CLAIR_NO_ID;

	for (size_t i = 0; i < count; i++) {
		uint32_t at = clair_catalog_entry(c, ids[i])->parent;
		if (folder == CLAIR_NO_ID) {
			folder = at;
			continue;
		}
		/* Parents have lower ids: climb the higher one until they meet. */
		while (at != folder) {
			if (at > folder)
				at = clair_catalog_entry(c, at)->parent;
			else
				folder = clair_catalog_entry(c, folder)->parent;
		}
	}
	return folder == CLAIR_NO_ID ? 0 : folder;
}

static int apply_split(struct numbering *n)
{
	autofree uint32_t *positions = NULL;
	char *error = NULL;
	uint32_t count;

	int r = clair_split_new(n->split, n->count, &positions, &count, &error);
	free(error);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < count; i++)
		positions[i] = n->ids[positions[i]];
	free(n->ids);
	n->ids = take_ptr(positions);
	n->count = count;
	return 0;
}

/* Samples that are only numbers. */
static int number_samples(struct numbering *n, uint32_t count)
{
	n->ids = malloc(sizeof *n->ids * (count + 1ul));
	n->count = count;
	for (uint32_t i = 0; n->ids && i < count; i++)
		n->ids[i] = i;
	return n->ids ? 0 : -ENOMEM;
}

static int numbering_init(const struct trial *t, const char *index, const char *split,
			  struct numbering *n)
{
	const struct clair_discover_config *config = &t->d->config;
	const struct clair_catalog *c = config->catalog;
	char *error = NULL;
	int r;

	*n = (struct numbering){ .index = c ? index : NULL, .split = split };
	if (c)
		r = clair_index_make(c, t->folder, index, &n->ids, &n->count, &error);
	else
		r = number_samples(n, config->samples);
	free(error);
	if (r == 0 && split)
		r = apply_split(n);
	return r == 0 ? clair_numbering_fill(n, t->opened,
					     c ? clair_catalog_count(c) : config->samples) :
			r;
}

static bool is_same(const struct numbering *a, const struct numbering *b)
{
	return a->count == b->count && !memcmp(a->ids, b->ids, sizeof *a->ids * a->count);
}

/* Adds one unless it is like another or the opens say no: a part of a split has all of
 * them. */
static void add_numbering(struct trial *t, const char *index, const char *split)
{
	struct numbering *n = &t->all[t->count];
	bool no = numbering_init(t, index, split, n) < 0 ||
		  n->strange > (split ? 0 : t->opened->count / 2);

	for (size_t k = 0; k < t->count && !no; k++)
		no = is_same(&t->all[k], n);
	if (no)
		clair_numbering_finish(n);
	t->count += !no;
}

static const char *const indices[] = { "imagefolder",	"sorted", "walk", "natural",
				       "sorted-images", "bytes" };
/* No split first; then those that recipes use. */
static const char *const splits[] = { NULL,
				      "torch:42:0.8/0.2:0",
				      "torch:0:0.8/0.2:0",
				      "torch:42:0.9/0.1:0",
				      "torch:0:0.9/0.1:0",
				      "torch:1234:0.8/0.2:0",
				      "sklearn:42:0.2:train",
				      "sklearn:0:0.2:train",
				      "sklearn:42:0.1:train",
				      "hf:42:0.15:train",
				      "hf:42:0.1:train",
				      "hf:42:0.2:train",
				      "fastai:42:0.2:train" };
#define INDICES (sizeof indices / sizeof indices[0])
#define SPLITS (sizeof splits / sizeof splits[0])

static void add_numberings(struct trial *t)
{
	const char *given = clair_words_get(&t->d->given, "index");
	const char *split = clair_words_get(&t->d->given, "split");
	const struct clair_catalog *c = t->d->config.catalog;
	bool one = !c || (given && strcmp(given, "auto"));
	uint32_t most = c ? clair_catalog_count(c) : t->d->config.samples;

	for (size_t k = 0; k < (split || most > HUGE_SET ? 1 : SPLITS); k++)
		for (size_t i = 0; i < (one ? 1 : INDICES) && t->count < NUMBERINGS; i++)
			add_numbering(t, one ? given : indices[i], split ? split : splits[k]);
}

/* --- whole orders ----------------------------------------------------------------------------- */

/* A sampler by name with one seed (or none), over a few epochs: one of 10^EXTRA. GOES_ON: one
 * generator for the run. */
static bool try_sampler(struct trial *t, const char *name, uint64_t seed, bool has_seed,
			bool goes_on, double extra)
{
	struct clair_words words = { 0 };
	struct clair_indices order = { 0 };
	struct clair_sampler *sampler = NULL;
	char *error = NULL;
	bool yes = false;

	if (!clair_fit_entries(t->n, extra) && !clair_fit_early(t->n, t->opened, extra))
		return false;
	if ((has_seed && clair_trial_number(&words, "seed", seed) < 0) ||
	    (goes_on && clair_words_set(&words, "per_epoch", "0") < 0)) {
		clair_words_finish(&words);
		return false;
	}
	struct clair_order_params params = { .n = t->n->count, .world = t->world,
					     .words = &words };
	if (clair_sampler_new(name, &params, NULL, NULL, &sampler, &error) == 0) {
		/* The first epoch is the same whether it goes on or not. */
		for (uint64_t e = goes_on; e < (has_seed ? EPOCHS : 1) && !yes; e++) {
			if (clair_sampler_epoch(sampler, e, t->rank, &order) < 0)
				break;
			yes = clair_fit(t->n, t->opened, order.at, order.count, extra);
		}
	}
	free(error);
	clair_sampler_free(sampler);
	clair_indices_finish(&order);
	clair_words_finish(&words);
	return yes && clair_trial_answer(t, name, seed, has_seed) == 0 &&
	       (!goes_on || clair_words_set(t->words, "per_epoch", "0") == 0);
}

/* Whole shuffles: a few seeds, less for large sets. */
static bool try_shuffles(struct trial *t)
{
	static const char *const others[] = { "numpy-randomstate", "python-shuffle",
					      "numpy-generator" };
	size_t few = t->n->count > LARGE ? 6 : clair_usual_seed_count;

	for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
		for (size_t i = 0; i < few * 2 && !atomic_load(&t->d->cancel); i++)
			if (try_sampler(t, others[k], clair_usual_seeds[i / 2], true, i & 1, 4))
				return true;
	return false;
}

/* Orders that give each sample to several ranks, at about the same time: what the ranks open
 * together begins as other orders over the same permutation do. */
static bool try_repeated(struct trial *t)
{
	static const char *const repeated[] = { "torchvision-ra", "timm-repeat-aug" };
	enum { REPEATED = sizeof repeated / sizeof repeated[0] };
	bool yes = false;
	uint32_t world = t->world, rank = t->rank;
	/* Of three workers each one's own sequence is that of a DistributedSampler, too: only all
	 * of them together tell. */
	struct opened together = { .ids = t->opened->ids, .pids = t->opened->pids,
				   .count = t->opened->count };
	struct opened *apart = t->opened;

	t->opened = &together;
	for (size_t i = 0; i < t->count && !yes; i++) {
		t->n = &t->all[i];
		if (!(t->one_rank || clair_numbering_repeats(t->n)) ||
		    (t->any_world && t->n->count > LARGE))
			continue;
		for (uint32_t w = t->any_world ? 2 : world;
		     w <= (t->any_world ? SMALL_WORLDS : world) && !yes &&
		     !atomic_load(&t->d->cancel);
		     w++)
			for (uint32_t r = t->any_world ? 0 : rank;
			     r <= (t->any_world ? w - 1 : rank) && !yes; r++)
				for (size_t k = 0; k < REPEATED && !yes; k++) {
					t->world = w;
					t->rank = r;
					yes = try_sampler(t, repeated[k], 0, false, false, 3);
				}
	}
	t->opened = apart;
	if (yes)
		return true;
	t->world = world;
	t->rank = rank;
	return false;
}

/* Every family with the words that it has by itself, and few seeds: recipes seldom say more.
 * Only over the likeliest numberings. */
static bool try_families(struct trial *t)
{
	static const char *const tried[] = { "sequential", "torch-distributed", "torch-random",
					     "torch-default", "numpy-randomstate",
					     "python-shuffle", "numpy-generator" };
	const struct clair_family *family;
	size_t few = t->n->count > LARGE ? 2 : 6;

	for (size_t k = 0; (family = clair_family_at(k)); k++) {
		bool again = false;
		for (size_t i = 0; i < sizeof tried / sizeof tried[0]; i++)
			again = again || !strcmp(tried[i], family->name);
		if (again)
			continue;
		for (size_t i = 0; i < few && !atomic_load(&t->d->cancel); i++)
			if (try_sampler(t, family->name, clair_usual_seeds[i ? i - 1 : 0],
					i > 0, false, 5))
				return true;
	}
	return false;
}

/* --- all of it ----------------------------------------------------------------------------------- */

/* In list order: of the whole, or of parts. */
static bool try_in_order(struct trial *t, bool parts)
{
	for (size_t i = 0; i < t->count; i++) {
		t->n = &t->all[i];
		if (parts == !!t->n->split && try_sampler(t, "sequential", 0, false, false, 2))
			return true;
	}
	return false;
}

static bool try_quick(struct trial *t)
{
	return try_in_order(t, false) || try_repeated(t) ||
	       clair_try_seeds(t, t->count, 1, 0, SMALL_SEEDS) ||
	       clair_try_seeds(t, t->count, 1, UINT32_MAX, 1ull << 32) || /* -1 */
	       clair_try_early_draws(t) || (t->any_world && clair_try_worlds(t));
}

/* Keras' data sets of a folder: a part of the files, and a buffer that depends on the batch. */
static bool try_keras(struct trial *t)
{
	static const uint64_t seeds[] = { 1337, 123, 42, 0 };
	static const char *const batches[] = { "32", "128", "64", "16" };
	static const char *const keys[] = { "batch", "validation_split", "subset" };
	bool yes = false;

	for (size_t k = 0; k < 32 && !yes && !atomic_load(&t->d->cancel); k++) {
		const char *values[] = { batches[k % 4], "0.2", "training" };
		struct clair_words words = { 0 };
		struct clair_indices order = { 0 };
		struct clair_sampler *sampler = NULL;
		size_t count = k < 16 ? 3 : 1; /* or no part of them */
		uint64_t seed = seeds[k / 4 % 4];
		char *error = NULL;

		int r = clair_trial_number(&words, "seed", seed);
		for (size_t i = 0; i < count && r == 0; i++)
			r = clair_words_set(&words, keys[i], values[i]);
		struct clair_order_params params = { .n = t->n->count, .world = 1,
						     .words = &words };
		if (r == 0)
			r = clair_sampler_new("keras-directory", &params, NULL, NULL, &sampler,
					      &error);
		yes = r == 0 && clair_sampler_epoch(sampler, 0, 0, &order) == 0 &&
		      clair_fit(t->n, t->opened, order.at, order.count, 4) &&
		      clair_trial_answer(t, "keras-directory", seed, true) == 0;
		for (size_t i = 0; i < count && yes; i++)
			yes = clair_words_set(t->words, keys[i], values[i]) == 0;
		free(error);
		clair_sampler_free(sampler);
		clair_indices_finish(&order);
		clair_words_finish(&words);
	}
	return yes;
}

static bool try_whole_orders(struct trial *t)
{
	for (size_t i = 0; i < t->count && !atomic_load(&t->d->cancel); i++) {
		t->n = &t->all[i];
		if (try_shuffles(t))
			return true;
	}
	for (size_t i = 0; i < t->count && i < LIKELY && !atomic_load(&t->d->cancel); i++) {
		t->n = &t->all[i];
		if (try_families(t) || (t->world == 1 && !t->n->split && try_keras(t)))
			return true;
	}
	return false;
}

/* All seeds, and what costs as much. */
static bool try_dear(struct trial *t, bool large, bool dearest)
{
	const uint64_t all = 1ull << 32;

	/* A part of torch's random_split, in its order, is the begin of a permutation of the
	 * whole, which is likelier and was tried before. */
	return try_in_order(t, true) ||
	       (t->any_world && clair_try_seeds(t, LIKELY, WORLDS, 0, SMALL_SEEDS)) ||
	       clair_try_model_draws(t, LIKELY) ||
	       clair_try_seeds(t, t->count, 1, SMALL_SEEDS, all) ||
	       (large && try_whole_orders(t)) || (dearest && clair_try_python(t)) ||
	       (t->any_world && dearest &&
		clair_try_seeds(t, LIKELY, SMALL_WORLDS, SMALL_SEEDS, all));
}

static bool try_all(struct trial *t, enum effort effort)
{
	/* Whole orders of a large set take as long as all of torch's seeds. */
	bool large = t->count && t->all[0].count > LARGE;

	return try_quick(t) || (effort >= CHEAP && !large && try_whole_orders(t)) ||
	       (effort >= DEAR && try_dear(t, large, effort >= DEAREST));
}

bool clair_discover_try(struct clair_discover *d, struct opened *opened,
			enum effort effort, uint32_t *folder, struct clair_words *words)
{
	struct numbering all[NUMBERINGS] = { 0 };
	struct trial t = { .d = d, .opened = opened, .words = words, .all = all };

	if (opened->count < LEAST_OPENS)
		return false;
	if (d->config.catalog)
		t.folder = clair_discover_folder(d->config.catalog, opened->ids,
						 opened->count);
	pthread_mutex_lock(&d->lock);
	t.any_world = !d->world;
	t.world = d->world ? d->world : 1;
	t.rank = d->world ? d->rank : 0;
	t.one_rank = d->by_environment && d->world > 1 && !d->several;
	pthread_mutex_unlock(&d->lock);
	add_numberings(&t);
	bool yes = try_all(&t, effort);
	if (yes)
		*folder = t.folder;
	for (size_t i = 0; i < t.count; i++)
		clair_numbering_finish(&all[i]);
	return yes;
}
