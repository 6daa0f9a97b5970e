/* SPDX-License-Identifier: BSD-3-Clause */
#include "learn_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

/* --- deals ------------------------------------------------------------------------------------ */

/* Workers are numbered in the order in which they were started. */
static int by_start(const void *a, const void *b)
{
	const struct clair_process *x = &(*(const struct clair_pass_reader *const *)a)->process;
	const struct clair_process *y = &(*(const struct clair_pass_reader *const *)b)->process;

	if (x->started != y->started)
		return x->started < y->started ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Numbers the readers as workers: WORKER has a place a reader. */
static void number_workers(const struct clair_pass *p, unsigned *worker)
{
	const struct clair_pass_reader *sorted[CLAIR_PASS_READERS];

	for (unsigned r = 0; r < p->reader_count; r++)
		sorted[r] = &p->readers[r];
	qsort(sorted, p->reader_count, sizeof(sorted[0]), by_start);
	for (unsigned w = 0; w < p->reader_count; w++)
		worker[sorted[w] - p->readers] = w;
}

/* How many of N samples in batches of BATCH worker W of WORKERS gets. */
static uint64_t share_of(uint64_t n, uint64_t batch, unsigned workers, unsigned w)
{
	uint64_t batches = (n + batch - 1) / batch;
	uint64_t own = batches / workers + (w < batches % workers);
	uint64_t count = own * batch;

	if (own && (batches - 1) % workers == w)
		count -= batches * batch - n;
	return count;
}

static bool explains(const struct clair_pass *p, const unsigned *worker, unsigned group,
		     uint32_t batch)
{
	uint64_t n = p->count / group;

	for (unsigned r = 0; r < p->reader_count; r++)
		if (share_of(n, batch, p->reader_count, worker[r]) * group !=
		    p->readers[r].count)
			return false;
	return true;
}

/* Batch sizes that people use come first. */
static unsigned rarity(uint32_t batch)
{
	if (!(batch & (batch - 1)) && batch >= 4 && batch <= 1024)
		return 0;
	return batch % 8 == 0 ? 1 : batch % 10 == 0 ? 2 : batch <= 64 ? 3 : 4;
}

size_t clair_learn_batches(const struct clair_pass *p, unsigned group, uint32_t *batches,
			   size_t room)
{
	unsigned worker[CLAIR_PASS_READERS];
	size_t n = 0;

	if (!p->count || p->count % group || !room)
		return 0;
	if (p->reader_count < 2) {
		batches[0] = 1; /* whatever it is: the order is exact */
		return 1;
	}
	number_workers(p, worker);
	uint64_t most = p->count / group;
	for (unsigned rare = 0; rare <= 4; rare++)
		for (uint32_t batch = 1; batch <= most && n < room; batch++)
			if (rarity(batch) == rare && explains(p, worker, group, batch))
				batches[n++] = batch;
	return n;
}

int clair_learn_order(const struct clair_pass *p, const struct learn_deal *deal,
		      struct learn_pass *out)
{
	uint64_t samples = p->count / deal->group;
	unsigned worker[CLAIR_PASS_READERS] = { 0 };
	size_t begins[CLAIR_PASS_READERS + 1];

	if (p->reader_count != deal->workers || p->count % deal->group)
		return -EINVAL;
	autofree uint32_t *files = malloc((p->count + 1) * sizeof *files);
	autofree uint32_t *ids = clair_learn_by_reader(p, begins);
	if (!files || !ids)
		return -ENOMEM;
	number_workers(p, worker);
	for (unsigned r = 0; r < p->reader_count; r++) {
		for (size_t i = 0; i < begins[r + 1] - begins[r]; i++) {
			uint64_t nth = i / deal->group;
			uint64_t batch = nth / deal->batch * deal->workers + worker[r];
			uint64_t k = batch * deal->batch + nth % deal->batch;

			if (k >= samples)
				return -EINVAL;
			files[k * deal->group + i % deal->group] = ids[begins[r] + i];
		}
	}
	*out = (struct learn_pass){ .deal = *deal, .samples = (uint32_t)samples };
	out->files = take_ptr(files);
	return 0;
}

/* --- fits -------------------------------------------------------------------------------------- */

static double log10_choose(unsigned n, unsigned k)
{
	return (lgamma(n + 1.) - lgamma(k + 1.) - lgamma(n - k + 1.)) / M_LN10;
}

/* Whether open I of START is what some worker opens as its nth. */
static bool is_there(const struct learn_start *s, uint32_t i, const struct learn_deal *d,
		     const uint32_t *files)
{
	for (uint32_t w = 0; w < d->workers; w++)
		if (files[(size_t)w * CLAIR_LEARN_NTH * d->group + s->nth[i]] == s->ids[i])
			return true;
	return false;
}

/* The same when readers are not known: anywhere in the loader's window. */
static bool is_near(const struct learn_start *s, uint32_t i, const uint32_t *files,
		    uint64_t window)
{
	for (uint64_t at = 0; at < window; at++)
		if (files[at] == s->ids[i])
			return true;
	return false;
}

bool clair_learn_follows(const struct learn_start *s, const struct learn_deal *deal,
			 uint32_t samples, const uint32_t *files, uint32_t count, bool known)
{
	uint64_t ahead = deal->workers > 1 ? 3ull * deal->workers * deal->batch * deal->group : 0;
	double digits = 0, needed = CLAIR_LEARN_DIGITS + CLAIR_LEARN_TRIALS;
	uint64_t files_in_all = (uint64_t)samples * deal->group;
	uint32_t hits = 0, all = 0;

	for (uint32_t i = 0; i < s->count; i++) {
		uint64_t window = known ? deal->workers : i + 1 + ahead;

		if (s->known[i] != known ||
		    (known && s->nth[i] >= CLAIR_LEARN_NTH * deal->group))
			continue;
		if (window > count)
			window = count;
		all++;
		if (known ? is_there(s, i, deal, files) : is_near(s, i, files, window)) {
			hits++;
			digits += log10((double)files_in_all / (double)window);
		}
		/* A few strange ones may be among them: a picture that was looked at twice. */
		if (all - hits > all / 8 + 1)
			return false;
		if (hits >= 4 && digits - log10_choose(all, hits) >= needed)
			return true;
	}
	return false;
}

bool clair_learn_lies_in(const uint8_t *mark, uint32_t count, uint32_t needed,
			 const uint32_t *order, uint32_t length, uint32_t files,
			 double trials, uint32_t *begin)
{
	uint32_t n = 0;
	autofree uint32_t *at = malloc((needed + 1ul) * sizeof *at);

	if (!at || needed < 8 || needed > count)
		return false;
	/* The last NEEDED places of marked files, in a ring. */
	for (uint32_t i = 0; i < length; i++) {
		if (!mark[order[i]])
			continue;
		at[n++ % needed] = i;
		if (n < needed)
			continue;
		uint32_t first = at[n % needed], span = i - first;
		double digits = (needed - 1) * log10((double)files / (span + 1.)) -
				log10_choose(count, needed) - trials;
		if (digits >= CLAIR_LEARN_DIGITS) {
			*begin = first;
			return true;
		}
	}
	return false;
}
