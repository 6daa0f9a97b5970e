/* SPDX-License-Identifier: BSD-3-Clause */
#include "stream.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "index.h"
#include "options.h"
#include "split.h"

/* Epochs kept a local rank: the one that is read, the next, one that a hypothesis needs. */
#define CACHED_PER_RANK 3

struct clair_stream {
	const struct clair_catalog *catalog;
	uint32_t folder;
	struct clair_words words;
	char *sampler_name, *index_name;
	struct clair_sampler *sampler; /* NULL: unknown */
	uint32_t *samples;
	uint32_t *positions; /* with a split: by sample, its index in the dataset order */
	uint32_t count;
	uint32_t *ranks;
	size_t rank_count;
	uint64_t world, batch, workers, first_epoch, end_epoch;
	struct clair_epoch **cache; /* most recently used first */
	size_t cached, cache_room;
};

struct clair_epoch *clair_epoch_get(struct clair_epoch *epoch)
{
	atomic_fetch_add_explicit(&epoch->references, 1, memory_order_relaxed);
	return epoch;
}

void clair_epoch_put(struct clair_epoch *epoch)
{
	if (epoch &&
	    atomic_fetch_sub_explicit(&epoch->references, 1, memory_order_acq_rel) == 1)
		free(epoch);
}

void clair_stream_free(struct clair_stream *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->cached; i++)
		clair_epoch_put(s->cache[i]);
	free(s->cache);
	clair_sampler_free(s->sampler);
	clair_words_finish(&s->words);
	free(s->sampler_name);
	free(s->index_name);
	free(s->samples);
	free(s->positions);
	free(s->ranks);
	free(s);
}

static int read_numbers(struct clair_stream *s, char **error)
{
	const struct clair_words *w = &s->words;
	const char *ranks = clair_words_get(w, "ranks");
	uint64_t epochs;

	int r = clair_words_uint(w, "world", 1, UINT32_MAX, &s->world, error);
	if (r == 0 && s->world == 0)
		r = clair_bad(error, "world=0: must be at least 1");
	if (r == 0)
		r = clair_words_uint(w, "batch", 0, UINT32_MAX, &s->batch, error);
	if (r == 0)
		r = clair_words_uint(w, "workers", 0, UINT32_MAX, &s->workers, error);
	if (r == 0)
		r = clair_words_uint(w, "epoch", 0, UINT64_MAX / 2, &s->first_epoch, error);
	if (r == 0)
		r = clair_words_uint(w, "epochs", UINT64_MAX, UINT64_MAX / 2, &epochs, error);
	if (r == 0)
		r = clair_ranks_parse(ranks ? ranks : "0", (uint32_t)s->world, &s->ranks,
				      &s->rank_count, error);
	if (r == 0)
		s->end_epoch = epochs == UINT64_MAX ? epochs : s->first_epoch + epochs;
	return r;
}

static int make_samples(struct clair_stream *s, char **error)
{
	const char *split = clair_words_get(&s->words, "split");

	int r = s->catalog ? clair_index_make(s->catalog, s->folder, s->index_name,
					      &s->samples, &s->count, error) :
			     0;
	if (r < 0 || !split || !strcmp(split, "none"))
		return r;
	autofree uint32_t *positions = NULL;
	uint32_t count;
	r = clair_split_new(split, s->count, &positions, &count, error);
	if (r < 0)
		return r;
	uint32_t *samples = malloc(sizeof *samples * (count + 1ul));
	if (!samples)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		samples[i] = s->samples[positions[i]];
	free(s->samples);
	s->samples = samples;
	s->count = count;
	s->positions = take_ptr(positions);
	return 0;
}

/* For sampler=list: samples' numbers by path, relative to the source or the folder. */
struct path_map {
	const struct clair_stream *stream;
	uint32_t *number; /* by catalog id, CLAIR_NO_ID: no sample */
};

static int path_index(void *arg, const char *path, uint32_t *index)
{
	struct path_map *map = arg;
	const struct clair_stream *s = map->stream;
	char full[8192];
	uint32_t id = clair_catalog_find(s->catalog, path);

	size_t n = clair_catalog_path(s->catalog, s->folder, full, sizeof full);
	if (id == CLAIR_NO_ID && n && n + strlen(path) + 2 < sizeof full) {
		full[n] = '/';
		strcpy(full + n + 1, path);
		id = clair_catalog_find(s->catalog, full);
	}
	if (id != CLAIR_NO_ID)
		id = clair_catalog_resolve(s->catalog, id);
	if (id == CLAIR_NO_ID || map->number[id] == CLAIR_NO_ID)
		return -ENOENT;
	*index = map->number[id];
	return 0;
}

/* Sizes of the samples in bytes, for families that make batches by them; NULL without
 * a catalog. */
static int sizes_of(const struct clair_stream *s, uint64_t **out)
{
	*out = NULL;
	if (!s->catalog)
		return 0;
	uint64_t *sizes = malloc(sizeof *sizes * (s->count + 1ul));
	if (!sizes)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->count; i++)
		sizes[i] = clair_catalog_entry(s->catalog, s->samples[i])->size;
	*out = sizes;
	return 0;
}

static int open_sampler(struct clair_stream *s, char **error)
{
	autofree uint64_t *sizes = NULL;
	autofree uint32_t *number = NULL;
	struct path_map map = { .stream = s };

	int r = sizes_of(s, &sizes);
	if (r < 0)
		return r;
	if (s->catalog && !strncmp(s->sampler_name, "list:", 5)) {
		uint32_t n = clair_catalog_count(s->catalog);
		number = map.number = malloc(sizeof *number * n);
		if (!number)
			return -ENOMEM;
		memset(number, 0xff, sizeof *number * n);
		for (uint32_t i = s->count; i-- > 0;)
			number[s->samples[i]] = i;
	}
	struct clair_order_params params = { .n = s->count, .world = (uint32_t)s->world,
					     .words = &s->words, .sizes = sizes };
	return clair_sampler_new(s->sampler_name, &params, number ? path_index : NULL, &map,
				 &s->sampler, error);
}

/* Which sampler the words mean: NULL when they do not say. */
static const char *meant_sampler(const struct clair_words *words)
{
	const char *sampler = clair_words_get(words, "sampler");
	const char *seed = clair_words_get(words, "seed");
	bool has_seed = seed && strcmp(seed, "auto");

	if (!sampler || !strcmp(sampler, "auto"))
		return has_seed ? "torch-distributed" : NULL;
	if (has_seed || !strcmp(sampler, "sequential") || !strncmp(sampler, "list:", 5))
		return sampler;
	/* A sampler without a seed: families that take none are known all the same. */
	const struct clair_family *family = clair_family_find(sampler);
	for (const struct clair_family_word *w = family ? family->words : NULL; w && w->name;
	     w++)
		if (!strcmp(w->name, "seed"))
			return seed ? NULL : sampler; /* seed=auto: to be found */
	return sampler;
}

static int set_up(struct clair_stream *s, const struct clair_words *words, char **error)
{
	const char *index = clair_words_get(words, "index");
	const char *sampler = meant_sampler(words);
	const char *seed = clair_words_get(words, "seed");

	index = index ? index : "auto";
	if (s->catalog)
		index = clair_index_meant(s->catalog, s->folder, index);
	s->index_name = strdup(index);
	s->sampler_name = strdup(sampler ? sampler : "auto");
	if (!s->index_name || !s->sampler_name)
		return -ENOMEM;
	int r = clair_words_copy(&s->words, words);
	if (r == 0 && seed && !strcmp(seed, "auto"))
		clair_words_unset(&s->words, "seed");
	if (r == 0)
		r = read_numbers(s, error);
	if (r == 0)
		r = make_samples(s, error);
	if (r == 0 && sampler)
		r = open_sampler(s, error);
	if (r < 0)
		return r;
	s->cache_room = s->rank_count * CACHED_PER_RANK;
	s->cache = calloc(s->cache_room, sizeof(struct clair_epoch *));
	return s->cache ? 0 : -ENOMEM;
}

static int finish_new(struct clair_stream *s, int r, struct clair_stream **out)
{
	if (r < 0)
		clair_stream_free(s);
	else
		*out = s;
	return r;
}

int clair_stream_new(const struct clair_catalog *catalog, uint32_t folder,
		     const struct clair_words *words, struct clair_stream **out,
		     char **error)
{
	struct clair_stream *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->catalog = catalog;
	s->folder = folder;
	return finish_new(s, set_up(s, words, error), out);
}

int clair_stream_new_numbers(uint32_t n, const struct clair_words *words,
			     struct clair_stream **out, char **error)
{
	struct clair_stream *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->samples = malloc(sizeof *s->samples * (n + 1ul));
	if (!s->samples)
		return finish_new(s, -ENOMEM, out);
	for (uint32_t i = 0; i < n; i++)
		s->samples[i] = i;
	s->count = n;
	return finish_new(s, set_up(s, words, error), out);
}

static int make_epoch(struct clair_stream *s, uint64_t epoch, uint32_t rank,
		      struct clair_epoch **out)
{
	struct clair_indices list = { 0 };

	int r = clair_sampler_epoch(s->sampler, epoch, rank, &list);
	struct clair_epoch *e = NULL;
	if (r == 0) {
		e = malloc(sizeof *e + sizeof *e->ids * list.count);
		r = e ? 0 : -ENOMEM;
	}
	if (r == 0) {
		e->references = 1;
		e->epoch = epoch;
		e->rank = rank;
		e->count = (uint32_t)list.count;
		for (size_t i = 0; i < list.count; i++)
			e->ids[i] = s->samples[list.at[i]];
		*out = e;
	}
	clair_indices_finish(&list);
	return r;
}

int clair_stream_epoch(struct clair_stream *s, uint64_t epoch, uint32_t rank,
		       struct clair_epoch **out)
{
	struct clair_epoch *e = NULL;
	size_t i;

	if (!s->sampler)
		return -ENOENT;
	for (i = 0; i < s->cached; i++) {
		if (s->cache[i]->epoch == epoch && s->cache[i]->rank == rank) {
			e = s->cache[i];
			break;
		}
	}
	if (!e) {
		int r = make_epoch(s, epoch, rank, &e);
		if (r < 0)
			return r;
		if (s->cached < s->cache_room)
			i = s->cached++;
		else
			clair_epoch_put(s->cache[i = s->cached - 1]);
	}
	memmove(s->cache + 1, s->cache, i * sizeof *s->cache);
	s->cache[0] = e;
	*out = clair_epoch_get(e);
	return 0;
}

int clair_stream_indices(struct clair_stream *s, uint64_t epoch, uint32_t rank,
			 struct clair_indices *out)
{
	if (!s->sampler)
		return -ENOENT;
	int r = clair_sampler_epoch(s->sampler, epoch, rank, out);
	for (size_t i = 0; r == 0 && s->positions && i < out->count; i++)
		out->at[i] = s->positions[out->at[i]];
	return r;
}

int clair_stream_ids(struct clair_stream *s, uint64_t epoch, uint32_t rank,
		     struct clair_indices *out)
{
	if (!s->sampler)
		return -ENOENT;
	int r = clair_sampler_epoch(s->sampler, epoch, rank, out);
	for (size_t i = 0; r == 0 && i < out->count; i++)
		out->at[i] = s->samples[out->at[i]];
	return r;
}

bool clair_stream_known(const struct clair_stream *s)
{
	return s->sampler != NULL;
}

uint32_t clair_stream_folder(const struct clair_stream *s)
{
	return s->folder;
}

const struct clair_words *clair_stream_words(const struct clair_stream *s)
{
	return &s->words;
}

const char *clair_stream_sampler(const struct clair_stream *s)
{
	return s->sampler_name;
}

const char *clair_stream_index(const struct clair_stream *s)
{
	return s->index_name;
}

const uint32_t *clair_stream_ranks(const struct clair_stream *s, size_t *count)
{
	*count = s->rank_count;
	return s->ranks;
}

uint32_t clair_stream_world(const struct clair_stream *s)
{
	return (uint32_t)s->world;
}

uint32_t clair_stream_batch(const struct clair_stream *s)
{
	return (uint32_t)s->batch;
}

uint32_t clair_stream_workers(const struct clair_stream *s)
{
	return (uint32_t)s->workers;
}

uint64_t clair_stream_first_epoch(const struct clair_stream *s)
{
	return s->first_epoch;
}

uint64_t clair_stream_end_epoch(const struct clair_stream *s)
{
	return s->end_epoch;
}

const uint32_t *clair_stream_samples(const struct clair_stream *s, uint32_t *count)
{
	*count = s->count;
	return s->samples;
}
