/* SPDX-License-Identifier: BSD-3-Clause */
/* Holds the opens against what an earlier run of the same data did. */
#include "learn_internal.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index.h"
#include "log.h"

/* Epochs of a remembered sampler that may be the running one, and how many entries in all. */
#define EPOCHS 16
#define EFFORT (16u << 20)
#define RANKS 64

/* --- loading -------------------------------------------------------------------------------- */

static void left_aside(const char *file, int r, const char *error)
{
	if (r != -ENOENT)
		log_warning("%s: %s; it is left aside", file,
			    error	  ? error :
			    r == -EBADMSG ? "damaged, or of other data" :
					    strerror(-r));
}

static void load_words(struct clair_learn *l)
{
	struct learn_memory *m = &l->memory;
	char *error = NULL;

	int r = clair_remember_load(l->memory_file, l->config.catalog, &m->folder, &m->words);
	if (r == 0) {
		/* What is given now is so whatever it was. */
		r = clair_words_copy(&m->words, &l->given);
		const char *seed = clair_words_get(&m->words, "seed");
		if (r == 0 && seed && !strcmp(seed, "auto"))
			clair_words_unset(&m->words, "seed");
	}
	if (r == 0)
		r = clair_stream_new(l->config.catalog, m->folder, &m->words, &m->stream,
				     &error);
	if (r == 0 && !clair_stream_known(m->stream))
		r = -EBADMSG;
	if (r < 0) {
		left_aside(l->memory_file, r, error);
		clair_stream_free(m->stream);
		m->stream = NULL;
		clair_words_finish(&m->words);
	}
	free(error);
}

static void load_opens(struct clair_learn *l)
{
	struct learn_memory *m = &l->memory;
	uint32_t samples = 0;
	char *error = NULL;

	int r = clair_remember_load_opens(l->opens_file, &m->opens);
	if (r == 0 && m->opens->catalog != clair_catalog_hash(l->config.catalog))
		r = -EBADMSG;
	if (r == 0)
		r = clair_index_make(l->config.catalog, 0, CLAIR_REMEMBER_INDEX, &m->ids,
				     &samples, &error);
	if (r == 0 && samples != m->opens->samples)
		r = -EBADMSG;
	free(error);
	if (r < 0) {
		left_aside(l->opens_file, r, NULL);
		clair_remembered_free(m->opens);
		m->opens = NULL;
	}
}

void clair_learn_load(struct clair_learn *l)
{
	if (!l->memory_file)
		return;
	load_words(l);
	load_opens(l);
}

void clair_learn_unload(struct clair_learn *l)
{
	struct learn_memory *m = &l->memory;

	clair_words_finish(&m->words);
	clair_stream_free(m->stream);
	clair_remembered_free(m->opens);
	free(m->ids);
	*m = (struct learn_memory){ 0 };
}

/* --- comparing ------------------------------------------------------------------------------ */

struct compare {
	uint8_t *mark; /* by id; owned */
	uint32_t count;
};

static int set_number(struct clair_words *words, const char *word, uint64_t value)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return clair_words_set(words, word, text);
}

/* The epoch EPOCH of the ranks that the stream has here, in turns; or of one RANK only. */
static int merge_ranks(struct clair_stream *s, uint64_t epoch, const uint32_t *ranks,
		       size_t count, struct clair_indices *out)
{
	struct clair_epoch *one;
	uint32_t longest = 0;
	int r = 0;

	out->count = 0;
	for (size_t i = 0; i < count && r == 0; i++) {
		r = clair_stream_epoch(s, epoch, ranks[i], &one);
		if (r == 0) {
			longest = one->count > longest ? one->count : longest;
			clair_epoch_put(one);
		}
	}
	if (r == 0)
		r = clair_indices_reserve(out, longest * count + 1);
	if (r < 0)
		return r;
	memset(out->at, 0xff, longest * count * sizeof *out->at);
	for (size_t i = 0; i < count && r == 0; i++) {
		r = clair_stream_epoch(s, epoch, ranks[i], &one);
		if (r < 0)
			break;
		for (uint32_t k = 0; k < one->count; k++)
			out->at[k * count + i] = one->ids[k];
		clair_epoch_put(one);
	}
	for (size_t i = 0; i < longest * count; i++)
		if (out->at[i] != CLAIR_NO_ID)
			out->at[out->count++] = out->at[i];
	return r;
}

static bool epoch_is(struct clair_learn *l, const struct compare *c, uint64_t epoch,
		     const uint32_t *ranks, size_t count, uint64_t *effort)
{
	struct clair_indices order = { 0 };
	uint32_t files = 0, begin;
	bool yes = false;

	clair_stream_samples(l->memory.stream, &files);
	if (merge_ranks(l->memory.stream, epoch, ranks, count, &order) == 0) {
		*effort += order.count;
		yes = clair_learn_lies_in(c->mark, c->count, clair_learn_most(c->count), order.at,
					  (uint32_t)order.count, files,
					  log10(EPOCHS * (RANKS + 1.)), &begin);
	}
	clair_indices_finish(&order);
	return yes;
}

static bool recall_words(struct clair_learn *l, const struct compare *c, uint32_t *folder,
			 struct clair_words *words)
{
	struct clair_stream *s = l->memory.stream;
	size_t count;
	uint64_t effort = 0;

	if (!s)
		return false;
	const uint32_t *ranks = clair_stream_ranks(s, &count);
	uint64_t first = clair_stream_first_epoch(s), end = clair_stream_end_epoch(s);
	uint32_t world = clair_stream_world(s), rank = CLAIR_NO_ID;
	bool yes = false;

	for (uint64_t e = first; e < end && e - first < EPOCHS && !yes && effort < EFFORT; e++) {
		yes = epoch_is(l, c, e, ranks, count, &effort);
		/* It may be another rank that runs here today. */
		for (uint32_t r = 0; r < world && world <= RANKS && world > 1 && !yes; r++) {
			yes = epoch_is(l, c, e, &r, 1, &effort);
			rank = yes ? r : CLAIR_NO_ID;
		}
	}
	if (!yes)
		return false;
	*folder = l->memory.folder;
	return clair_words_copy(words, &l->memory.words) == 0 &&
	       (rank == CLAIR_NO_ID || set_number(words, "ranks", rank) == 0) &&
	       clair_words_set(words, "how", "remembered") == 0;
}

static bool recall_opens(struct clair_learn *l, const struct compare *c, uint32_t *folder,
			 struct clair_words *words)
{
	const struct clair_remembered *o = l->memory.opens;
	double trials = o ? log10((double)o->opens + 1) : 0;
	uint32_t begin, pass;
	bool yes = false;

	for (pass = 0; o && pass < o->passes && !yes && !atomic_load(&l->cancel); pass++) {
		uint32_t count = o->counts[pass];
		autofree uint32_t *ids = malloc((count + 1ul) * sizeof *ids);

		if (!ids || clair_remembered_pass(o, pass, ids) < 0)
			return false;
		for (uint32_t i = 0; i < count; i++)
			ids[i] = l->memory.ids[ids[i]];
		uint32_t files = count < o->samples ? count : o->samples;
		yes = clair_learn_lies_in(c->mark, c->count, clair_learn_most(c->count), ids, count,
					  files, trials, &begin);
		if (yes)
			break;
	}
	if (!yes)
		return false;
	*folder = 0;
	/* What comes after the last pass is not known. */
	return clair_words_set(words, "sampler", "remembered") == 0 &&
	       clair_words_set(words, "index", CLAIR_REMEMBER_INDEX) == 0 &&
	       clair_words_set(words, "opens", l->opens_file) == 0 &&
	       set_number(words, "epoch", pass) == 0 &&
	       set_number(words, "epochs", o->passes - pass) == 0 &&
	       clair_words_set(words, "how", "remembered") == 0;
}

bool clair_learn_recall(struct clair_learn *l, const uint32_t *ids, size_t count,
			uint32_t *folder, struct clair_words *words, bool *of_opens)
{
	autofree uint8_t *mark = calloc(1, clair_catalog_count(l->config.catalog));
	struct compare c = { .mark = mark };

	if (!mark)
		return false;
	for (size_t i = 0; i < count; i++) {
		c.count += !mark[ids[i]];
		mark[ids[i]] = 1;
	}
	*of_opens = false;
	if (recall_words(l, &c, folder, words))
		return true;
	clair_words_finish(words);
	*of_opens = true;
	return recall_opens(l, &c, folder, words);
}

/* --- ranks that came later ---------------------------------------------------------------------- */

static bool has_rank(const struct clair_stream *s, uint32_t rank)
{
	size_t count;
	const uint32_t *ranks = clair_stream_ranks(s, &count);

	for (size_t i = 0; i < count; i++)
		if (ranks[i] == rank)
			return true;
	return false;
}

/* The ranks that S has, and those of EPOCH that have some of the opens: TEXT, "0,2". Returns how
 * many of them S has not. */
static uint32_t ranks_in(struct clair_learn *l, struct clair_stream *s, uint64_t epoch,
			 const struct compare *c, char *text, size_t size)
{
	uint32_t world = clair_stream_world(s), files = 0, fresh = 0, begin;
	size_t n = 0;

	clair_stream_samples(s, &files);
	text[0] = '\0';
	for (uint32_t r = 0; r < world && n + 8 < size && !atomic_load(&l->cancel); r++) {
		bool in = has_rank(s, r);
		struct clair_epoch *e;

		if (!in && clair_stream_epoch(s, epoch, r, &e) == 0) {
			/* They share the opens about evenly, however many there are. */
			for (uint32_t share = 1; share <= 8 && !in; share *= 2)
				in = clair_learn_lies_in(c->mark, c->count,
							 c->count / share * 3 / 4, e->ids,
							 e->count, files,
							 log10(EPOCHS * RANKS * 4.), &begin);
			fresh += in;
			clair_epoch_put(e);
		}
		if (in)
			n += (size_t)snprintf(text + n, size - n, "%s%u", n ? "," : "", r);
	}
	return fresh;
}

bool clair_learn_more_ranks(struct clair_learn *l, const struct clair_words *answer,
			    uint32_t folder, const uint32_t *ids, size_t count,
			    struct clair_words *words)
{
	const char *world = clair_words_get(answer, "world");
	uint32_t ranks = world ? (uint32_t)strtoul(world, NULL, 10) : 0;
	autofree uint8_t *mark = calloc(1, clair_catalog_count(l->config.catalog));
	struct compare c = { .mark = mark };
	struct clair_stream *stream = NULL;
	char text[1024] = "", *error = NULL;
	bool yes = false;

	if (!mark || ranks < 2 || ranks > RANKS || clair_words_get(&l->given, "ranks"))
		return false;
	for (size_t i = 0; i < count; i++) {
		c.count += !mark[ids[i]];
		mark[ids[i]] = 1;
	}
	if (clair_stream_new(l->config.catalog, folder, answer, &stream, &error) == 0 &&
	    clair_stream_known(stream)) {
		uint64_t first = clair_stream_first_epoch(stream);
		for (uint64_t e = first; e < first + EPOCHS && !yes; e++)
			yes = ranks_in(l, stream, e, &c, text, sizeof text) > 0;
	}
	clair_stream_free(stream);
	free(error);
	return yes && clair_words_copy(words, answer) == 0 &&
	       clair_words_set(words, "ranks", text) == 0;
}
