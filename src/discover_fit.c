/* SPDX-License-Identifier: BSD-3-Clause */
/* Whether opens follow an order. Two tests. An order fits when its first K entries were all
 * among the first M distinct opens: workers open out of order, but within a window. For opens
 * that follow another order of N samples the chance of that is (M / N)^K. And where the
 * opens' threads are known: a worker opens its batches in exact order, so each open that
 * follows its forerunner as the order has it is a chance of 1 / N. */
#include "discover_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define NONE CLAIR_DISCOVER_NONE
/* The most of the opens that an order's beginning must lie in: the rest is run-ahead. */
#define PREFIX_SHARE 2
#define LONGEST 4096
/* The very first entries of an order are among the first so many opens, or a quarter. */
#define SOON 128
/* Openers that are told apart, and opens of each that are looked at. */
#define MOST_OPENERS 64
#define MOST_EACH 256

/* --- opens ------------------------------------------------------------------------------- */

static struct opener *opener_of(struct opened *o, pid_t pid)
{
	for (unsigned i = 0; i < o->opener_count; i++)
		if (o->openers[i].pid == pid)
			return &o->openers[i];
	if (o->opener_count == MOST_OPENERS)
		return NULL;
	struct opener *opener = &o->openers[o->opener_count];
	*opener = (struct opener){ .pid = pid,
				   .opens = malloc(MOST_EACH * sizeof *opener->opens) };
	if (!opener->opens)
		return NULL;
	o->opener_count++;
	return opener;
}

void clair_opened_finish(struct opened *o)
{
	for (unsigned i = 0; i < o->opener_count; i++)
		free(o->openers[i].opens);
	free(o->openers);
	o->openers = NULL;
	o->opener_count = 0;
}

int clair_opened_init(struct opened *o, const uint32_t *ids, const pid_t *pids, size_t count)
{
	*o = (struct opened){ .ids = ids, .pids = pids, .count = count,
			      .openers = calloc(MOST_OPENERS, sizeof *o->openers) };
	if (!o->openers)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		struct opener *opener = opener_of(o, pids[i]);
		if (!opener) {
			clair_opened_finish(o); /* too many: they tell nothing */
			return 0;
		}
		if (opener->count < MOST_EACH)
			opener->opens[opener->count++] = (uint32_t)i;
	}
	return 0;
}

/* --- numberings --------------------------------------------------------------------------- */

void clair_numbering_finish(struct numbering *n)
{
	free(n->ids);
	free(n->first);
	free(n->bits);
	free(n->soon);
	free(n->early);
	free(n->at);
	*n = (struct numbering){ 0 };
}

int clair_numbering_fill(struct numbering *n, const struct opened *o, uint32_t number_count)
{
	autofree uint32_t *number = malloc(sizeof *number * (number_count + 1ul));
	autofree pid_t *by = malloc(sizeof *by * (o->count + 1)); /* who opened it first */
	size_t words = n->count / 64 + 1;

	n->first = malloc(sizeof *n->first * (n->count + 1ul));
	n->bits = calloc(words, sizeof *n->bits);
	n->soon = calloc(words, sizeof *n->soon);
	n->early = calloc(words, sizeof *n->early);
	n->at = malloc(sizeof *n->at * (o->count + 1));
	if (!number || !by || !n->first || !n->bits || !n->soon || !n->early || !n->at)
		return -ENOMEM;
	memset(n->first, 0xff, sizeof *n->first * n->count);
	memset(number, 0xff, sizeof *number * number_count);
	for (uint32_t i = 0; i < n->count; i++)
		number[n->ids[i]] = i;
	for (size_t i = 0; i < o->count; i++)
		n->at[i] = number[o->ids[i]];
	/* When most samples have been opened, which they are says nothing. */
	for (size_t i = 0; i < o->count && (n->seen < n->count / 2 || n->count < 24); i++) {
		uint32_t at = n->at[i];
		n->strange += at == NONE;
		n->own += at != NONE;
		if (at != NONE && n->first[at] != NONE)
			n->again += by[n->first[at]] != o->pids[i];
		if (at == NONE || n->first[at] != NONE)
			continue;
		by[n->seen] = o->pids[i];
		n->first[at] = n->seen++;
		n->bits[at / 64] |= 1ull << at % 64;
		if (n->seen <= SOON || n->seen <= o->count / 4)
			n->soon[at / 64] |= 1ull << at % 64;
	}
	for (unsigned p = 0; p < o->opener_count; p++) {
		unsigned early = 0;
		for (uint32_t i = 0; i < o->openers[p].count && early < CLAIR_EARLY; i++) {
			uint32_t at = n->at[o->openers[p].opens[i]];
			if (at == NONE)
				continue;
			n->early[at / 64] |= 1ull << at % 64;
			early++;
		}
	}
	return 0;
}

/* --- fitting --------------------------------------------------------------------------------- */

uint32_t clair_fit_entries(const struct numbering *n, double extra)
{
	if (n->seen < 12 || n->seen >= n->count)
		return 0;
	double digits = -log10((double)n->seen / n->count);
	double needed = ceil((CLAIR_DISCOVER_DIGITS + extra) / digits);

	if (needed < 4)
		needed = 4;
	return needed <= (double)n->seen / PREFIX_SHARE && needed <= LONGEST ?
		       (uint32_t)needed :
		       0;
}

/* What one thread's run of LENGTH opens in exact order is worth: any of the threads may stand
 * anywhere, and the run may be of any length. */
static double run_digits(const struct numbering *n, const struct opened *o, uint32_t length,
			 uint32_t count)
{
	/* A loader does not open a sample twice: what was opened is not drawn from. */
	double left = (double)n->count - n->seen;

	if (left < 2)
		return 0;
	double digits = length * log10(left) - log10(o->opener_count) - log10(count + 1.);
	return digits > 0 ? digits : 0;
}

/* What the freedom to choose among the threads costs. */
static double choice_digits(const struct opened *o, uint32_t count)
{
	return o->opener_count * log10(2) + log10(count + 1.);
}

bool clair_fit_early(const struct numbering *n, const struct opened *o, double extra)
{
	double most = 0;
	uint32_t longest = 0;

	for (unsigned p = 0; p < o->opener_count; p++) {
		most += run_digits(n, o, o->openers[p].count, o->openers[p].count);
		if (o->openers[p].count > longest)
			longest = o->openers[p].count;
	}
	return longest >= CLAIR_EARLY && n->count > 2 * CLAIR_EARLY * o->opener_count &&
	       most - choice_digits(o, longest) >= CLAIR_DISCOVER_DIGITS + extra;
}

/* Sample number of open number I of a thread, opens of other samples left out. */
static uint32_t sample_of(const struct numbering *n, const struct opener *p, uint32_t *at)
{
	while (*at < p->count && n->at[p->opens[*at]] == NONE)
		++*at;
	return *at < p->count ? n->at[p->opens[(*at)++]] : NONE;
}

/* How many opens of a thread are as a worker's that has batches WORKER, WORKER + WORKERS, …
 * of BATCH each. */
static uint32_t run_of(const struct numbering *n, const struct opener *p,
		       const uint32_t *order, size_t count, uint32_t worker, uint32_t workers,
		       uint32_t batch)
{
	uint32_t at = 0;

	for (uint32_t i = 0;; i++) {
		uint32_t sample = sample_of(n, p, &at);
		uint64_t place = ((uint64_t)worker + (uint64_t)workers * (i / batch)) * batch +
				 i % batch;
		if (sample == NONE || place >= count || order[place] != sample)
			return i;
	}
}

/* The thread that has the first batch. */
static const struct opener *leader(const struct numbering *n, const struct opened *o,
				   uint32_t first)
{
	for (unsigned p = 0; p < o->opener_count; p++) {
		uint32_t at = 0;
		if (sample_of(n, &o->openers[p], &at) == first)
			return &o->openers[p];
	}
	return NULL;
}

double clair_fit_digits(const struct numbering *n, const struct opened *o,
			const uint32_t *order, size_t count)
{
	const struct opener *lead = count ? leader(n, o, order[0]) : NULL;

	if (!lead)
		return 0;
	/* As one batch that does not end: where it does is the batch size. */
	uint32_t batch = run_of(n, lead, order, count, 0, 1, UINT32_MAX);
	uint32_t workers = o->opener_count;
	double digits = -choice_digits(o, lead->count);
	for (unsigned p = 0; p < workers; p++) {
		const struct opener *x = &o->openers[p];
		uint32_t longest = x == lead ? batch : 0;
		for (uint32_t w = x == lead ? 0 : 1; w < (x == lead ? 1 : workers); w++) {
			uint32_t run = run_of(n, x, order, count, w, workers, batch);
			longest = run > longest ? run : longest;
		}
		digits += run_digits(n, o, longest, x->count);
	}
	return digits;
}

/* Whether the first NEEDED distinct entries of ORDER were all opened: one that it has again says
 * nothing new. */
static bool begins(const struct numbering *n, const uint32_t *order, size_t count, uint32_t needed)
{
	uint64_t had[CLAIR_DISCOVER_OPENS / 64 + 1] = { 0 };

	for (size_t i = 0; i < count; i++) {
		uint32_t first = n->first[order[i]];

		if (first == NONE)
			return false;
		needed -= !(had[first / 64] >> first % 64 & 1);
		if (!needed)
			return true;
		had[first / 64] |= 1ull << first % 64;
	}
	return false;
}

bool clair_fit(const struct numbering *n, const struct opened *o, const uint32_t *order,
	       size_t count, double extra)
{
	uint32_t needed = clair_fit_entries(n, extra);

	if (needed && count >= needed && begins(n, order, count, needed))
		return true;
	return o->opener_count && clair_fit_early(n, o, extra) &&
	       clair_fit_digits(n, o, order, count) >= CLAIR_DISCOVER_DIGITS + extra;
}
