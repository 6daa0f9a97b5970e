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
#include "stream.h"

#define NONE UINT32_MAX
/* Chance of a false answer: 10^-9, and as many digits more as the number of orders tried in
 * one go has. */
#define DIGITS 9
#define SMALL_SEEDS (1u << 20)
#define FEW_SEEDS 64 /* for samplers that cost a whole shuffle a seed */
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

static int numbering_init(struct clair_discover *d, uint32_t folder, const char *index,
			  const uint32_t *ids, size_t count, struct numbering *n)
{
	const struct clair_catalog *c = d->config.catalog;
	autofree uint32_t *number = malloc(sizeof *number * clair_catalog_count(c));
	char *error = NULL;

	*n = (struct numbering){ .index = index };
	int r = clair_index_make(c, folder, index, &n->ids, &n->count, &error);
	free(error);
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
	for (size_t i = 0; i < count; i++) {
		uint32_t at = number[ids[i]];
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

static int search(struct trial *t, uint32_t skip, uint64_t begin, uint64_t end, double extra,
		  uint32_t *seed)
{
	struct clair_seed_query q = { .n = t->n->count, .world = t->world, .rank = t->rank,
				      .skip = skip, .opened = t->n->bits,
				      .prefix = entries_needed(t->n, extra), .begin = begin,
				      .end = end, .threads = t->d->config.threads,
				      .cancel = &t->d->cancel };
	size_t count = 0;

	if (!q.prefix)
		return -EAGAIN;
	int r = clair_seed_search(&q, seed, 1, &count);
	if (r < 0)
		return r;
	return count == 1 ? 0 : -ENOENT; /* two would mean that nothing is sure */
}

/* Two effective seeds in a row that are not S, S + 1: RandomSampler draws them from the
 * default generator. Common states of it are walked until both appear. */
static bool try_default_generator(struct trial *t, uint32_t first, uint32_t second)
{
	char text[32];

	for (size_t i = 0; i < USUAL && !atomic_load(&t->d->cancel); i++) {
		struct clair_mt mt;
		uint64_t at = 0, found = 0, most = i < 6 ? 64u << 20 : 1u << 20;

		clair_mt_seed(&mt, (uint32_t)usual_seeds[i]);
		for (; at < most && !found; at++)
			if (clair_mt_u32(&mt) == first)
				found = at + 1;
		for (uint64_t stride = 1; found && stride <= 4096; stride++) {
			if (clair_mt_u32(&mt) != second)
				continue;
			if (found < 4 || answer(t, "torch-default", usual_seeds[i], true) < 0)
				break;
			/* Draw 3 + skip (from 0) gave the epoch that was seen last. */
			snprintf(text, sizeof text, "%llu",
				 (unsigned long long)(found - 1 + stride - 3));
			clair_words_set(t->words, "skip", text);
			snprintf(text, sizeof text, "%llu", (unsigned long long)stride);
			clair_words_set(t->words, "stride", text);
			return true;
		}
	}
	return false;
}

static bool found_seed(struct trial *t, uint32_t seed)
{
	struct clair_discover *d = t->d;
	bool had = d->has_last_seed;
	uint32_t last = d->last_seed;

	d->has_last_seed = true;
	d->last_seed = seed;
	if (had && seed != last && seed != last + 1 && t->world == 1 &&
	    try_default_generator(t, last, seed))
		return true;
	return answer(t, "torch-distributed", seed, true) == 0;
}

static bool try_seeds(struct trial *t, uint64_t begin, uint64_t end)
{
	double extra = log10((double)end);
	uint32_t seed;

	if (search(t, 0, begin, end, extra, &seed) == 0)
		return found_seed(t, seed);
	/* RandomSampler with a generator of its own: two draws come first. */
	if (t->world == 1 && search(t, 2, begin, end, extra, &seed) == 0)
		return answer(t, "torch-random", seed, true) == 0;
	return false;
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
	if (try_seeds(t, 0, SMALL_SEEDS))
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
static bool try_remembered(struct trial *t, const uint32_t *ids, size_t count)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream = NULL;
	char *error = NULL;
	uint32_t folder, needed;
	bool yes = false;

	(void)ids, (void)count;
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

static bool try_numberings(struct trial *t, struct numbering *all, size_t count, bool full,
			   const uint32_t *ids, size_t opens)
{
	for (size_t i = 0; i < count && !atomic_load(&t->d->cancel); i++) {
		t->n = &all[i];
		if (i == 0 && try_remembered(t, ids, opens))
			return true;
		if (try_cheap(t))
			return true;
	}
	/* All seeds, over the likeliest numbering; the others when there is time. */
	for (size_t i = 0; full && i < count && i < 2 && !atomic_load(&t->d->cancel); i++) {
		t->n = &all[i];
		if (try_seeds(t, SMALL_SEEDS, 1ull << 32))
			return true;
	}
	return false;
}

bool clair_discover_try(struct clair_discover *d, const uint32_t *ids, size_t count,
			bool full, uint32_t *folder, struct clair_words *words)
{
	static const char *const likely[] = { "imagefolder", "sorted", "walk", "natural",
					      "sorted-images", "bytes" };
	const char *given = clair_words_get(&d->given, "index");
	struct numbering all[6] = { 0 };
	struct trial t = { .d = d, .words = words,
			   .folder = clair_discover_folder(d->config.catalog, ids, count) };
	size_t n = 0;
	bool yes;

	pthread_mutex_lock(&d->lock);
	t.world = d->world ? d->world : 1;
	t.rank = d->rank;
	pthread_mutex_unlock(&d->lock);
	for (size_t i = 0; i < (given && strcmp(given, "auto") ? 1 : 6); i++) {
		const char *name = given && strcmp(given, "auto") ? given : likely[i];
		bool same = false;

		if (numbering_init(d, t.folder, name, ids, count, &all[n]) < 0 ||
		    all[n].seen * 2 < count / 2) {
			numbering_finish(&all[n]);
			continue;
		}
		for (size_t k = 0; k < n; k++)
			same = same || is_same(&all[k], &all[n]);
		if (same)
			numbering_finish(&all[n]);
		else
			n++;
	}
	yes = try_numberings(&t, all, n, full, ids, count);
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
