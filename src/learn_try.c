/* SPDX-License-Identifier: BSD-3-Clause */
/* The list is not known, the sampler may be: position k of its permutation for one epoch is
 * the k-th file that was opened then, so the next epoch's begin follows from it. */
#include "learn_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"
#include "sampler.h"
#include "usual_seeds.h"

#define DEALS 12
/* Samples of the next epoch's begin that are worked out where readers are not known. */
#define START 1024u
/* Entries of all hypotheses that are kept for later opens. */
#define KEPT (16u << 20)
/* Samples above which only few seeds are tried, since a permutation takes a while. */
#define LARGE 200000
#define FEW_SEEDS 8
/* So many are tried at once, the others when the processor has nothing better to do; and only
 * when some opens did not fit the first one. */
#define HASTY_SEEDS 8
#define PATIENT_OPENS 12
/* u32 that may have been drawn from the default generator before the first epoch, for so many
 * of the seeds. */
#define DRAWS 4096
#define DRAWN_SEEDS 5
/* The most samples that a loader may have left out at the end of an epoch. */
#define LEFT_OUT 256

/* Samplers, the most usual first; words that are not their defaults. */
static const struct variant {
	const char *sampler, *word[2], *value[2];
	bool seeded;
} variants[] = {
	{ "torch-distributed", { NULL }, { NULL }, true },
	{ "sequential", { NULL }, { NULL }, false },
	{ "torch-random", { NULL }, { NULL }, true },
	{ "torch-default", { NULL }, { NULL }, true },
	{ "torch-random", { "base" }, { "0" }, true },
	{ "python-shuffle", { NULL }, { NULL }, true },
	{ "python-shuffle", { "per_epoch" }, { "0" }, true },
	{ "python-shuffle", { "per_epoch", "cumulative" }, { "0", "1" }, true },
	{ "numpy-randomstate", { NULL }, { NULL }, true },
	{ "numpy-randomstate", { "per_epoch" }, { "0" }, true },
	{ "numpy-randomstate", { "per_epoch", "cumulative" }, { "0", "1" }, true },
	{ "numpy-generator", { NULL }, { NULL }, true },
	{ "numpy-generator", { "per_epoch" }, { "0" }, true },
	{ "numpy-generator", { "per_epoch", "cumulative" }, { "0", "1" }, true },
	{ "python-sample", { NULL }, { NULL }, true },
	{ "python-sample", { "per_epoch" }, { "0" }, true },
};
#define VARIANTS (sizeof variants / sizeof variants[0])

struct hypothesis {
	const struct variant *variant;
	uint64_t seed;
	uint32_t skip; /* drawn from the generator before */
	unsigned deal;
	uint32_t samples; /* of the dataset: the loader may leave some out */
	uint32_t count;
	uint32_t *files; /* the next epoch's begin; owned, NULL: not kept */
};

struct learn_hypotheses {
	struct learn_pass deals[DEALS];
	unsigned deal_count;
	uint64_t epoch; /* of the pass */
	struct hypothesis *items;
	size_t count, room;
	uint64_t pass; /* number of the pass that should follow */
	bool known;    /* its readers are */
	size_t entries;
	/* What is tried next: a seed, then numbers of samples that were left out. */
	size_t next_seed;
	uint32_t next_left_out;
	uint64_t next_draw;
	uint32_t looked; /* opens that all were held against */
	bool stale;      /* the pass that should follow is over */
};

void clair_learn_forget(struct clair_learn *l)
{
	struct learn_hypotheses *h = l->hypotheses;

	if (!h)
		return;
	for (unsigned i = 0; i < h->deal_count; i++)
		free(h->deals[i].files);
	for (size_t i = 0; i < h->count; i++)
		free(h->items[i].files);
	free(h->items);
	free(h);
	l->hypotheses = NULL;
}

void clair_learn_take_start(struct clair_learn *l, struct learn_start *start)
{
	const struct clair_opens *o = &l->opens;
	const struct clair_pass *p = clair_opens_newest(o);
	bool split = o->candidate != SIZE_MAX;
	uint32_t nth[CLAIR_PASS_READERS] = { 0 };

	start->pass = p->number + split;
	start->count = 0;
	for (size_t i = split ? o->candidate : 0;
	     i < p->count && start->count < CLAIR_LEARN_START; i++) {
		start->ids[start->count] = p->ids[i];
		start->nth[start->count] = nth[p->by[i]]++;
		start->known[start->count++] = p->readers[p->by[i]].process.pid != 0;
	}
}

/* --- samplers ----------------------------------------------------------------------------------- */

static int set_number(struct clair_words *words, const char *word, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return clair_words_set(words, word, text);
}

static int words_of(const struct variant *v, uint64_t seed, uint32_t skip,
		    struct clair_words *words)
{
	int r = v->seeded ? set_number(words, "seed", seed) : 0;

	if (r == 0 && skip)
		r = set_number(words, "skip", skip);
	for (unsigned i = 0; i < 2 && v->word[i] && r == 0; i++)
		r = clair_words_set(words, v->word[i], v->value[i]);
	return r;
}

/* The epochs EPOCH and the next of a sampler over N samples, of one rank. */
static int two_epochs(const struct variant *v, uint64_t seed, uint32_t skip, uint32_t n,
		      uint64_t epoch, struct clair_indices *first,
		      struct clair_indices *second)
{
	struct clair_words words = { 0 };
	struct clair_order_params params = { .n = n, .world = 1, .words = &words };
	struct clair_sampler *sampler = NULL;
	char *error = NULL;

	int r = words_of(v, seed, skip, &words);
	if (r == 0)
		r = clair_sampler_new(v->sampler, &params, NULL, NULL, &sampler, &error);
	if (r == 0)
		r = clair_sampler_epoch(sampler, epoch, 0, first);
	if (r == 0)
		r = clair_sampler_epoch(sampler, epoch + 1, 0, second);
	if (r == 0 && (first->count != n || second->count != n))
		r = -EINVAL;
	free(error);
	clair_sampler_free(sampler);
	clair_words_finish(&words);
	return r;
}

/* WHERE[i] is the place of sample i in the order FIRST. */
static uint32_t *invert(const struct clair_indices *first)
{
	uint32_t *where = malloc((first->count + 1) * sizeof *where);

	if (!where)
		return NULL;
	memset(where, 0xff, first->count * sizeof *where);
	for (uint32_t k = 0; k < first->count; k++)
		where[first->at[k]] = k;
	return where;
}

/* --- hypotheses --------------------------------------------------------------------------------- */

/* Where the sample is that a hypothesis has at entry I, in the sampler's order. */
static uint64_t place_of(const struct learn_hypotheses *h, const struct learn_deal *d, uint32_t i)
{
	if (!h->known)
		return i;
	uint32_t worker = i / CLAIR_LEARN_NTH, nth = i % CLAIR_LEARN_NTH;

	return ((uint64_t)(nth / d->batch) * d->workers + worker) * d->batch + nth % d->batch;
}

static struct hypothesis *add(struct learn_hypotheses *h, const struct variant *v,
			      uint64_t seed, unsigned deal, uint32_t n, const uint32_t *where,
			      const struct clair_indices *second)
{
	const struct learn_pass *p = &h->deals[deal];
	unsigned group = p->deal.group;
	uint32_t most = h->known ? p->deal.workers * CLAIR_LEARN_NTH : n < START ? n : START;

	if (h->count == h->room) {
		size_t room = h->room ? h->room * 2 : 256;
		struct hypothesis *items = realloc(h->items, room * sizeof *items);
		if (!items)
			return NULL;
		h->items = items;
		h->room = room;
	}
	uint32_t *files = malloc((size_t)most * group * sizeof *files);
	if (!files)
		return NULL;
	for (uint32_t i = 0; i < most; i++) {
		uint64_t place = place_of(h, &p->deal, i);
		uint32_t k = place < n ? where[second->at[place]] : CLAIR_NO_ID;

		for (unsigned g = 0; g < group; g++)
			files[i * group + g] = k < p->samples ? p->files[k * group + g] :
								CLAIR_NO_ID;
	}
	h->entries += (size_t)most * group;
	h->items[h->count] = (struct hypothesis){ .variant = v, .seed = seed, .deal = deal,
						  .samples = n, .count = most * group,
						  .files = files };
	return &h->items[h->count++];
}

static bool follows(const struct learn_hypotheses *h, const struct hypothesis *x,
		    const struct learn_start *start)
{
	return start->pass == h->pass && x->files &&
	       clair_learn_follows(start, &h->deals[x->deal].deal, x->samples, x->files,
				   x->count, h->known);
}

/* The opens of now; when there are many more than before, all that was tried is held against
 * them. The one that fits, or NULL. */
static const struct hypothesis *look_again(struct clair_learn *l, struct learn_start *start)
{
	struct learn_hypotheses *h = l->hypotheses;

	pthread_mutex_lock(&l->lock);
	clair_learn_take_start(l, start);
	pthread_mutex_unlock(&l->lock);
	h->stale = h->stale || start->pass != h->pass;
	if (h->stale || start->count < h->looked + 2 + h->looked / 4)
		return NULL;
	h->looked = start->count;
	for (size_t i = 0; i < h->count; i++)
		if (follows(h, &h->items[i], start))
			return &h->items[i];
	return NULL;
}

/* One sampler with one seed, over all deals. */
static const struct hypothesis *try_one(struct clair_learn *l, const struct variant *v,
					uint64_t seed, uint32_t skip, uint32_t left_out)
{
	struct learn_hypotheses *h = l->hypotheses;
	struct clair_indices first = { 0 }, second = { 0 };
	uint32_t n = h->deals[0].samples + left_out;
	struct learn_start start;
	const struct hypothesis *found = look_again(l, &start);

	if (!found && two_epochs(v, seed, skip, n, h->epoch, &first, &second) == 0) {
		autofree uint32_t *where = invert(&first);

		for (unsigned d = 0; d < h->deal_count && where && !found; d++) {
			struct hypothesis *x = NULL;

			if (left_out < h->deals[d].deal.batch)
				x = add(h, v, seed, d, n, where, &second);
			if (x)
				x->skip = skip;
			if (x && follows(h, x, &start)) {
				found = x;
			} else if (x && h->entries > KEPT) {
				free(x->files);
				h->count--;
			}
		}
	}
	clair_indices_finish(&first);
	clair_indices_finish(&second);
	return found;
}

/* --- the answer ------------------------------------------------------------------------------------ */

/* The dataset order: what was not opened is taken for the first file. */
static uint32_t *list_of(const struct learn_hypotheses *h, const struct hypothesis *x)
{
	const struct learn_pass *p = &h->deals[x->deal];
	struct clair_indices first = { 0 }, second = { 0 };
	unsigned group = p->deal.group;
	uint32_t *list = malloc(((size_t)x->samples * group + 1) * sizeof *list);

	if (!list || two_epochs(x->variant, x->seed, x->skip, x->samples, h->epoch, &first,
				&second) < 0) {
		free(list);
		list = NULL;
	}
	for (size_t i = 0; list && i < (size_t)x->samples * group; i++)
		list[i] = p->files[i % group];
	for (uint32_t k = 0; list && k < p->samples; k++)
		for (unsigned g = 0; g < group; g++)
			list[(size_t)first.at[k] * group + g] = p->files[k * group + g];
	clair_indices_finish(&first);
	clair_indices_finish(&second);
	return list;
}

static int answer(struct clair_learn *l, const struct hypothesis *x, uint32_t *folder,
		  struct clair_words *words)
{
	const struct learn_hypotheses *h = l->hypotheses;
	const struct learn_deal *deal = &h->deals[x->deal].deal;
	autofree uint32_t *list = list_of(h, x);
	autofree char *index = NULL;
	size_t count = (size_t)x->samples * deal->group;

	if (!list)
		return -ENOMEM;
	*folder = clair_learn_folder(l->config.catalog, list, count);
	int r = clair_learn_write_list(l->config.catalog, l->list_file, *folder, list, count);
	if (r == 0 && asprintf(&index, "list:%s", l->list_file) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = clair_words_copy(words, &l->given);
	clair_words_unset(words, "split"); /* it is in the list */
	if (r == 0)
		r = words_of(x->variant, x->seed, x->skip, words);
	if (r == 0)
		r = clair_words_set(words, "sampler",
				    deal->group > 1 ? "grouped" : x->variant->sampler);
	if (r == 0 && deal->group > 1)
		r = clair_words_set(words, "of", x->variant->sampler);
	if (r == 0 && deal->group > 1)
		r = set_number(words, "group", deal->group);
	if (r == 0)
		r = clair_words_set(words, "index", index);
	if (r == 0 && deal->workers > 1)
		r = set_number(words, "workers", deal->workers);
	if (r == 0 && deal->workers > 1)
		r = set_number(words, "batch", (uint64_t)deal->batch * deal->group);
	if (r == 0 && h->epoch)
		r = set_number(words, "epoch", h->epoch);
	return r == 0 ? clair_words_set(words, "how", "found") : r;
}

static bool give(struct clair_learn *l, const struct hypothesis *x, uint32_t *folder,
		 struct clair_words *words)
{
	if (!x)
		return false;
	int r = answer(l, x, folder, words);
	if (r == 0)
		return true;
	log_warning("a dataset order was learnt, but %s cannot be written: %s", l->list_file,
		    strerror(-r));
	clair_words_finish(words);
	return false;
}

/* --- all of it -------------------------------------------------------------------------------------- */

static int find_deals(struct clair_learn *l, const struct clair_pass *p)
{
	struct learn_hypotheses *h = l->hypotheses;
	unsigned group = clair_learn_group(l->config.catalog, p);
	uint32_t batches[DEALS];
	size_t count = clair_learn_batches(p, group, batches, DEALS);
	int r = 0;

	for (size_t i = 0; i < count; i++) {
		struct learn_deal deal = { .workers = p->reader_count, .batch = batches[i],
					   .group = group };

		r = clair_learn_order(p, &deal, &h->deals[h->deal_count]);
		if (r == 0)
			h->deal_count++;
		else if (r == -ENOMEM)
			return r;
	}
	pthread_mutex_lock(&l->lock);
	l->state.group = group;
	pthread_mutex_unlock(&l->lock);
	return h->deal_count ? 0 : -EINVAL;
}

static void set_patience(bool patient)
{
	struct sched_param none = { 0 };

	pthread_setschedparam(pthread_self(), patient ? SCHED_IDLE : SCHED_OTHER, &none);
}

static bool is_over(const struct clair_learn *l)
{
	return l->hypotheses->stale || atomic_load(&l->cancel);
}

static const struct hypothesis *try_seeds(struct clair_learn *l, const struct learn_start *start)
{
	struct learn_hypotheses *h = l->hypotheses;
	const struct hypothesis *found = NULL;
	size_t count = h->deals[0].samples > LARGE ? FEW_SEEDS : clair_usual_seed_count;

	for (; h->next_seed < count && !found; h->next_seed++) {
		size_t s = h->next_seed;

		if (s && start->count < PATIENT_OPENS)
			return NULL;
		/* The most usual answers must come within the first opens of an epoch, when
		 * loaders are busiest. */
		set_patience(s >= HASTY_SEEDS);
		for (size_t v = 0; v < VARIANTS && !found; v++) {
			if (is_over(l))
				return NULL;
			if (s == 0 || variants[v].seeded)
				found = try_one(l, &variants[v], clair_usual_seeds[s], 0, 0);
		}
	}
	return found;
}

/* The last batch of each epoch may have been left out: then all others are full. */
static const struct hypothesis *try_left_out(struct clair_learn *l)
{
	struct learn_hypotheses *h = l->hypotheses;
	const struct hypothesis *found = NULL;
	uint32_t n = h->deals[0].samples, longest = 0;

	for (unsigned d = 0; d < h->deal_count; d++)
		if (n % h->deals[d].deal.batch == 0 && h->deals[d].deal.batch > longest)
			longest = h->deals[d].deal.batch;
	longest = longest < LEFT_OUT ? longest : LEFT_OUT;
	for (; h->next_left_out < longest && n <= LARGE / 4 && !found; h->next_left_out++)
		for (size_t v = 0; v < 3 && !found && !is_over(l); v++)
			found = try_one(l, &variants[v], 0, 0, h->next_left_out);
	return found;
}

/* RandomSampler on the default generator after something else has drawn from it. */
static const struct hypothesis *try_draws(struct clair_learn *l)
{
	static const struct variant on_default = { "torch-default", { NULL }, { NULL }, true };
	struct learn_hypotheses *h = l->hypotheses;
	const struct hypothesis *found = NULL;

	set_patience(true);
	for (; h->next_draw < (uint64_t)DRAWS * DRAWN_SEEDS && !found && !is_over(l) &&
	       h->deals[0].samples <= LARGE / 4;
	     h->next_draw++)
		found = try_one(l, &on_default, clair_usual_seeds[h->next_draw % DRAWN_SEEDS],
				(uint32_t)(h->next_draw / DRAWN_SEEDS) + 1, 0);
	return found;
}

/* Holds what was tried against the opens of now, and tries more. */
static bool go_on(struct clair_learn *l, uint32_t *folder, struct clair_words *words)
{
	struct learn_hypotheses *h = l->hypotheses;
	struct learn_start start;
	const struct hypothesis *found = look_again(l, &start);

	if (start.pass != h->pass)
		return false;
	if (!found)
		found = try_seeds(l, &start);
	if (!found && start.count >= PATIENT_OPENS)
		found = try_left_out(l);
	if (!found && start.count >= PATIENT_OPENS)
		found = try_draws(l);
	set_patience(false);
	return give(l, found, folder, words);
}

bool clair_learn_try(struct clair_learn *l, const struct clair_pass *p, uint64_t epoch,
		     const struct learn_start *start, uint32_t *folder,
		     struct clair_words *words)
{
	const char *index = clair_words_get(&l->given, "index");

	clair_learn_forget(l);
	if (!l->list_file || (index && strcmp(index, "auto")))
		return false;
	struct learn_hypotheses *h = l->hypotheses = calloc(1, sizeof *h);
	if (!h)
		return false;
	h->epoch = epoch;
	h->pass = start->pass;
	h->known = start->count && start->known[0];
	h->next_left_out = 1;
	if (find_deals(l, p) < 0) {
		clair_learn_forget(l);
		return false;
	}
	return go_on(l, folder, words);
}

bool clair_learn_retry(struct clair_learn *l, uint32_t *folder, struct clair_words *words)
{
	return l->hypotheses && go_on(l, folder, words);
}
