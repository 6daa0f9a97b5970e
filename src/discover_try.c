/* SPDX-License-Identifier: BSD-3-Clause */
/* What is tried, cheap things first. An order fits when its first K entries were all among
 * the first M distinct opens: workers open out of order, but within a window. For opens
 * that follow another order of N samples the chance of that is (M / N)^K. */
#include "discover_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index.h"
#include "log.h"
#include "mt19937.h"
#include "remember.h"
#include "seed_search.h"
#include "split.h"
#include "stream.h"

#define NONE UINT32_MAX
/* Chance of a false answer: 10^-9, and as many digits more as the number of orders tried in
 * one go has. */
#define DIGITS 9
#define SMALL_SEEDS (1u << 20)
/* How far the default generator may have been drawn from: for usual seeds at once; for the
 * most usual ones before all seeds are searched (a ResNet-50 takes 49 million). */
#define EARLY_DRAWS 4096
#define LATE_DRAWS (56u << 20)
#define FEW_GENERATORS 4
/* Epochs of a sampler that may be the running one. */
#define EPOCHS 3
/* The most of the opens that an order's beginning must lie in: the rest is run-ahead. */
#define PREFIX_SHARE 2
#define LONGEST 4096

static const uint64_t usual_seeds[] = { 0,    42,   1234, 1337, 1,    2,    3,     7,
					10,   12,   21,   99,   100,  111,  123,   2020,
					2021, 2022, 2023, 2024, 2025, 3407, 12345, 31415,
					123456, 9176, 5, 8, 11, 13, 17, 1000, 777, 999, 4, 6,
					9, 20, 30, 50, 64, 128, 256, 512, 1024, 2026, 1111 };
#define USUAL (sizeof usual_seeds / sizeof usual_seeds[0])

struct trial {
	struct clair_discover *d;
	uint32_t folder;
	struct clair_words *words; /* the answer */
	struct numbering *n;
	uint32_t world, rank;
};

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

static void numbering_finish(struct numbering *n)
{
	free(n->ids);
	free(n->first);
	free(n->bits);
	*n = (struct numbering){ 0 };
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

static int numbering_init(struct clair_discover *d, uint32_t folder, const char *index,
			  const char *split, const uint32_t *ids, size_t count,
			  struct numbering *n)
{
	const struct clair_catalog *c = d->config.catalog;
	autofree uint32_t *number = malloc(sizeof *number * clair_catalog_count(c));
	char *error = NULL;

	*n = (struct numbering){ .index = index, .split = split };
	int r = clair_index_make(c, folder, index, &n->ids, &n->count, &error);
	free(error);
	if (r == 0 && split)
		r = apply_split(n);
	if (r < 0 || !number)
		return r < 0 ? r : -ENOMEM;
	n->first = malloc(sizeof *n->first * (n->count + 1ul));
	n->bits = calloc(n->count / 64 + 1, sizeof *n->bits);
	if (!n->first || !n->bits)
		return -ENOMEM;
	memset(n->first, 0xff, sizeof *n->first * n->count);
	memset(number, 0xff, sizeof *number * clair_catalog_count(c));
	for (uint32_t i = 0; i < n->count; i++)
		number[n->ids[i]] = i;
	/* When most samples have been opened, which they are says nothing. */
	for (size_t i = 0; i < count && (n->seen < n->count / 2 || n->count < 24); i++) {
		uint32_t at = number[ids[i]];
		n->strange += at == NONE;
		if (at == NONE || n->first[at] != NONE)
			continue;
		n->first[at] = n->seen++;
		n->bits[at / 64] |= 1ull << at % 64;
	}
	return 0;
}

/* --- fitting --------------------------------------------------------------------------------- */

/* Entries that must fit for a chance of 10^-DIGITS among 10^EXTRA orders; 0: there are not
 * enough opens yet. */
static uint32_t entries_needed(const struct numbering *n, double extra)
{
	if (n->seen < 12 || n->seen >= n->count)
		return 0;
	double digits = -log10((double)n->seen / n->count);
	double needed = ceil((DIGITS + extra) / digits);

	if (needed < 4)
		needed = 4;
	return needed <= (double)n->seen / PREFIX_SHARE && needed <= LONGEST ?
		       (uint32_t)needed :
		       0;
}

static bool fits(const struct numbering *n, const uint32_t *order, size_t count,
		 uint32_t needed)
{
	if (!needed || count < needed)
		return false;
	for (uint32_t i = 0; i < needed; i++)
		if (n->first[order[i]] == NONE)
			return false;
	return true;
}

static int answer(struct trial *t, const char *sampler, uint64_t seed, bool has_seed)
{
	char text[32];
	int r = clair_words_copy(t->words, &t->d->given);

	clair_words_unset(t->words, "seed");
	if (r == 0)
		r = clair_words_set(t->words, "sampler", sampler);
	if (r == 0)
		r = clair_words_set(t->words, "index", t->n->index);
	if (r == 0 && t->n->split)
		r = clair_words_set(t->words, "split", t->n->split);
	snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
	if (r == 0 && has_seed)
		r = clair_words_set(t->words, "seed", text);
	if (r == 0 && t->world > 1) {
		snprintf(text, sizeof text, "%u", t->world);
		r = clair_words_set(t->words, "world", text);
		if (r == 0 && !clair_words_get(t->words, "ranks")) {
			snprintf(text, sizeof text, "%u", t->rank);
			r = clair_words_set(t->words, "ranks", text);
		}
	}
	return r == 0 ? clair_words_set(t->words, "how", "found") : r;
}

/* A sampler by name with one seed (or none), over a few epochs. EXTRA: digits for the number
 * of orders that are tried with it. */
static bool try_sampler(struct trial *t, const char *name, uint64_t seed, bool has_seed,
			double extra)
{
	struct clair_words words = { 0 };
	struct clair_indices order = { 0 };
	struct clair_sampler *sampler = NULL;
	char text[32], *error = NULL;
	uint32_t needed = entries_needed(t->n, extra);
	bool yes = false;

	if (!needed)
		return false;
	snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
	if (has_seed && clair_words_set(&words, "seed", text) < 0)
		return false;
	struct clair_order_params params = { .n = t->n->count, .world = t->world,
					     .words = &words };
	if (clair_sampler_new(name, &params, NULL, NULL, &sampler, &error) == 0) {
		for (uint64_t e = 0; e < (has_seed ? EPOCHS : 1) && !yes; e++) {
			if (clair_sampler_epoch(sampler, e, t->rank, &order) < 0)
				break;
			yes = fits(t->n, order.at, order.count, needed);
		}
	}
	free(error);
	clair_sampler_free(sampler);
	clair_indices_finish(&order);
	clair_words_finish(&words);
	return yes && answer(t, name, seed, has_seed) == 0;
}

/* --- torch's seeds ------------------------------------------------------------------------------ */

static struct clair_seed_target target_of(struct trial *t, double extra)
{
	return (struct clair_seed_target){ .n = t->n->count, .world = t->world,
					   .rank = t->rank, .opened = t->n->bits,
					   .prefix = entries_needed(t->n, extra) };
}

static int set_number(struct clair_words *words, const char *word, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return clair_words_set(words, word, text);
}

/* RandomSampler without a generator: draw number AT of the default one, which
 * torch.manual_seed(SEED) had seeded, is this epoch's seed. */
static bool found_draw(struct trial *t, uint64_t seed, uint64_t at)
{
	struct clair_discover *d = t->d;
	uint64_t stride = 4; /* base seed and seed, an epoch, when nothing else draws */

	if (at < 3)
		return false;
	if (d->has_last_draw && d->last_generator == seed && at > d->last_draw)
		stride = at - d->last_draw;
	d->has_last_draw = true;
	d->last_generator = seed;
	d->last_draw = at;
	return answer(t, "torch-default", seed, true) == 0 &&
	       set_number(t->words, "skip", at - 3) == 0 &&
	       set_number(t->words, "stride", stride) == 0;
}

/* Walks the streams of COUNT usual seeds of the default generator over DRAWS draws. */
static bool walk_generators(struct trial *t, size_t count, uint64_t draws)
{
	struct clair_seed_target target =
		target_of(t, log10((double)draws * (double)count));
	struct clair_seed_query q = { .targets = &target, .count = 1, .threads = 1,
				      .cancel = &t->d->cancel };
	struct clair_seed_hit hit;

	if (!target.prefix || t->world != 1)
		return false;
	for (size_t i = 0; i < count && !atomic_load(&t->d->cancel); i++) {
		uint64_t at = 0;
		if (clair_seed_walk(&q, (uint32_t)usual_seeds[i], draws, &at,
				    &hit) == 0 &&
		    found_draw(t, usual_seeds[i], at))
			return true;
	}
	return false;
}

static bool found_seed(struct trial *t, uint32_t seed)
{
	struct clair_discover *d = t->d;
	bool stranger = d->has_last_seed && seed != d->last_seed && seed != d->last_seed + 1;

	d->has_last_seed = true;
	d->last_seed = seed;
	if (answer(t, "torch-distributed", seed, true) < 0)
		return false;
	/* Seeds that do not count up are drawn anew each epoch: what follows this one is
	 * not known. */
	return !stranger || set_number(t->words, "epochs", 1) == 0;
}

static bool try_seeds(struct trial *t, uint32_t skip, uint64_t begin, uint64_t end)
{
	struct clair_seed_target target = target_of(t, log10((double)end));
	struct clair_seed_query q = { .targets = &target, .count = 1, .begin = begin,
				      .end = end, .threads = t->d->config.threads,
				      .cancel = &t->d->cancel };
	struct clair_seed_hit hit;
	size_t count = 0;

	target.skip = skip;
	/* Two that fit would mean that nothing is sure. */
	if (!target.prefix || clair_seed_search(&q, &hit, 1, &count) < 0 || count != 1)
		return false;
	uint32_t seed = hit.seed;
	/* RandomSampler with a generator of its own: two draws come first. */
	return skip ? answer(t, "torch-random", seed, true) == 0 : found_seed(t, seed);
}

/* --- all of it ----------------------------------------------------------------------------------- */

static bool is_same(const struct numbering *a, const struct numbering *b)
{
	return a->count == b->count && !memcmp(a->ids, b->ids, sizeof *a->ids * a->count);
}

static bool try_cheap(struct trial *t)
{
	static const char *const others[] = { "numpy-randomstate", "python-shuffle",
					      "numpy-generator" };

	if (try_sampler(t, "sequential", 0, false, 1))
		return true;
	if (try_seeds(t, 0, 0, SMALL_SEEDS) ||
	    (t->world == 1 && try_seeds(t, 2, 0, SMALL_SEEDS)) ||
	    walk_generators(t, USUAL, EARLY_DRAWS))
		return true;
	/* Whole shuffles: a few seeds, less for large sets. */
	size_t few = t->n->count > 200000 ? 6 : USUAL;
	for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
		for (size_t i = 0; i < few && !atomic_load(&t->d->cancel); i++)
			if (try_sampler(t, others[k], usual_seeds[i], true, 3))
				return true;
	return false;
}

/* What an earlier run of the same data read. */
static bool try_remembered(struct trial *t)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream = NULL;
	char *error = NULL;
	uint32_t folder, needed;
	bool yes = false;

	if (!t->d->memory ||
	    clair_remember_load(t->d->memory, t->d->config.catalog, &folder, &words) < 0)
		return false;
	needed = entries_needed(t->n, 1);
	size_t ranks = 0;
	struct clair_epoch *e = NULL;
	if (needed && folder == t->folder &&
	    clair_stream_new(t->d->config.catalog, folder, &words, &stream, &error) == 0 &&
	    clair_stream_known(stream) &&
	    clair_stream_epoch(stream, clair_stream_first_epoch(stream),
			       clair_stream_ranks(stream, &ranks)[0], &e) == 0 &&
	    e->count >= needed) {
		autofree uint32_t *at = malloc(sizeof *at * clair_catalog_count(
								    t->d->config.catalog));
		yes = at != NULL;
		/* It may have samples that this numbering has not. */
		for (uint32_t i = 0; at && i < clair_catalog_count(t->d->config.catalog); i++)
			at[i] = NONE;
		for (uint32_t i = 0; at && i < t->n->count; i++)
			at[t->n->ids[i]] = t->n->first[i];
		for (uint32_t i = 0; yes && i < needed; i++)
			yes = at[e->ids[i]] != NONE;
	}
	clair_epoch_put(e);
	clair_stream_free(stream);
	free(error);
	if (yes) {
		clair_words_finish(t->words);
		yes = clair_words_copy(t->words, &words) == 0 &&
		      clair_words_set(t->words, "how", "remembered") == 0;
	}
	clair_words_finish(&words);
	return yes;
}

static bool try_numberings(struct trial *t, struct numbering *all, size_t count, bool full)
{
	for (size_t i = 0; i < count && !atomic_load(&t->d->cancel); i++) {
		t->n = &all[i];
		if (i == 0 && try_remembered(t))
			return true;
		if (try_cheap(t))
			return true;
	}
	if (!full)
		return false;
	/* A default generator after a model was made; then all seeds, over the likeliest
	 * numberings. */
	for (size_t i = 0; i < count && i < 2; i++) {
		t->n = &all[i];
		if (walk_generators(t, FEW_GENERATORS, LATE_DRAWS) ||
		    try_seeds(t, 0, SMALL_SEEDS, 1ull << 32))
			return true;
	}
	t->n = &all[0];
	return count && t->world == 1 && try_seeds(t, 2, SMALL_SEEDS, 1ull << 32);
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
				      "hf:42:0.1:train",
				      "hf:42:0.2:train",
				      "fastai:42:0.2:train" };
#define INDICES (sizeof indices / sizeof indices[0])
#define SPLITS (sizeof splits / sizeof splits[0])
#define NUMBERINGS 16

/* Adds one at place N unless it is like another or the opens say no: a part of a split has
 * all of them. Returns how many were added. */
static size_t add_numbering(struct clair_discover *d, const struct trial *t,
			    const char *index, const char *split, const uint32_t *ids,
			    size_t count, struct numbering *all, size_t n)
{
	bool no = numbering_init(d, t->folder, index, split, ids, count, &all[n]) < 0 ||
		  all[n].strange > (split ? 0 : count / 2);

	for (size_t k = 0; k < n && !no; k++)
		no = is_same(&all[k], &all[n]);
	if (no)
		numbering_finish(&all[n]);
	return !no;
}

bool clair_discover_try(struct clair_discover *d, const uint32_t *ids, size_t count,
			bool full, uint32_t *folder, struct clair_words *words)
{
	const char *given = clair_words_get(&d->given, "index");
	const char *split = clair_words_get(&d->given, "split");
	bool one = given && strcmp(given, "auto");
	struct numbering all[NUMBERINGS] = { 0 };
	struct trial t = { .d = d, .words = words,
			   .folder = clair_discover_folder(d->config.catalog, ids, count) };
	size_t n = 0;
	bool yes;

	pthread_mutex_lock(&d->lock);
	t.world = d->world ? d->world : 1;
	t.rank = d->rank;
	pthread_mutex_unlock(&d->lock);
	for (size_t k = 0; k < (split ? 1 : SPLITS); k++)
		for (size_t i = 0; i < (one ? 1 : INDICES) && n < NUMBERINGS; i++)
			n += add_numbering(d, &t, one ? given : indices[i],
					   split ? split : splits[k], ids, count, all, n);
	yes = try_numberings(&t, all, n, full);
	if (yes) {
		*folder = t.folder;
		if (d->memory && clair_remember_save(d->memory, d->config.catalog, t.folder,
						     words) < 0)
			log_debug("%s: what was found is not remembered", d->memory);
	}
	for (size_t i = 0; i < n; i++)
		numbering_finish(&all[i]);
	return yes;
}
