/* SPDX-License-Identifier: BSD-3-Clause */
/* Probes: searches for a seed (discover.h) over a part of the opens, where all of them say
 * nothing: the first file of each sample when a sample has several; the files that a manifest
 * names. */
#include "learn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cleanup.h"
#include "discover.h"
#include "log.h"

/* Opens that are looked at. */
#define LOOKED 192

struct learn_probe {
	struct clair_learn *learn;
	struct clair_discover *discover;
	uint64_t *listed; /* owned; by file: the manifest names it. NULL: no manifest */
	struct learn_grouping grouping;
};

/* --- answers ------------------------------------------------------------------------------------ */

/* The dataset order of an answer with all files of each sample. *COUNT files, or NULL. */
static uint32_t *expand(struct learn_probe *p, uint32_t folder, const struct clair_words *words,
			size_t *count)
{
	const struct learn_grouping *g = &p->grouping;
	struct clair_stream *stream;
	char *error = NULL;
	uint32_t n;

	int r = clair_stream_new(p->learn->config.catalog, folder, words, &stream, &error);
	free(error);
	if (r < 0)
		return NULL;
	const uint32_t *samples = clair_stream_samples(stream, &n);
	uint32_t *list = malloc(((size_t)n * g->group + 1) * sizeof *list);
	for (uint32_t i = 0; list && i < n; i++)
		for (unsigned k = 0; k < g->group; k++) {
			uint32_t id = clair_learn_partner(p->learn->config.catalog, g,
							  samples[i], k);
			/* One without a partner is not read with one. */
			list[(size_t)i * g->group + k] = id == CLAIR_NO_ID ? samples[i] : id;
		}
	clair_stream_free(stream);
	*count = (size_t)n * g->group;
	return list;
}

/* Makes of an answer over the first files one over all. */
static int answer_groups(struct learn_probe *p, uint32_t *folder, struct clair_words *words)
{
	struct clair_learn *l = p->learn;
	const char *sampler = clair_words_get(words, "sampler");
	autofree char *index = NULL;
	char text[16];
	size_t count = 0;

	autofree uint32_t *list = expand(p, *folder, words, &count);
	if (!list || !count || !l->list_file)
		return -EINVAL;
	*folder = clair_learn_folder(l->config.catalog, list, count);
	int r = clair_learn_write_list(l->config.catalog, l->list_file, *folder, list, count);
	snprintf(text, sizeof text, "%u", p->grouping.group);
	if (r == 0 && asprintf(&index, "list:%s", l->list_file) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = clair_words_set(words, "of", sampler ? sampler : "torch-distributed");
	if (r == 0)
		r = clair_words_set(words, "sampler", "grouped");
	if (r == 0)
		r = clair_words_set(words, "group", text);
	if (r == 0)
		r = clair_words_set(words, "index", index);
	clair_words_unset(words, "split"); /* it is in the list */
	return r;
}

static bool found(void *arg, uint32_t folder, const struct clair_words *answer,
		  const uint32_t *ids, size_t count)
{
	struct learn_probe *p = arg;
	struct clair_words words = { 0 };

	(void)ids, (void)count;
	int r = clair_words_copy(&words, answer);
	if (r == 0)
		r = clair_learn_set_ranks(p->learn, &words);
	if (r == 0 && p->grouping.group > 1)
		r = answer_groups(p, &folder, &words);
	if (r == 0)
		clair_learn_hand_over(p->learn, folder, &words, false, NULL);
	clair_words_finish(&words);
	return true;
}

/* --- probes --------------------------------------------------------------------------------------- */

static bool is_wanted(const struct learn_probe *p, uint32_t id)
{
	if (p->listed)
		return p->listed[id / 64] >> id % 64 & 1;
	return clair_learn_is_first(p->learn->config.catalog, &p->grouping, id);
}

void clair_learn_probes_open(struct clair_learn *l, pid_t tid, uint32_t id)
{
	unsigned count = atomic_load(&l->probe_count);

	for (unsigned i = 0; i < count; i++)
		if (is_wanted(l->probes[i], id))
			clair_discover_open(l->probes[i]->discover, tid, id);
}

static void free_probe(struct learn_probe *p)
{
	clair_discover_free(p->discover);
	free(p->listed);
	free(p);
}

void clair_learn_probes_free(struct clair_learn *l)
{
	for (unsigned i = atomic_load(&l->probe_count); i-- > 0;)
		free_probe(l->probes[i]);
	atomic_store(&l->probe_count, 0);
}

void clair_learn_probes_again(struct clair_learn *l)
{
	unsigned count = atomic_load(&l->probe_count);

	for (unsigned i = 0; i < count; i++)
		clair_discover_again(l->probes[i]->discover);
}

/* Starts one: the opens so far are told to it. INDEX: its dataset order, NULL: a usual one. */
static int start_probe(struct clair_learn *l, const char *index, uint64_t **listed,
		       const struct learn_grouping *grouping)
{
	unsigned at = atomic_load(&l->probe_count);
	struct clair_words given = { 0 };
	struct clair_discover_config config = { .catalog = l->config.catalog,
						.given = &given,
						.threads = l->config.threads, .found = found };

	if (at == CLAIR_LEARN_PROBES)
		return 0;
	struct learn_probe *p = config.arg = calloc(1, sizeof *p);
	int r = p ? clair_words_copy(&given, &l->given) : -ENOMEM;
	if (r == 0 && index)
		r = clair_words_set(&given, "index", index);
	if (r == 0)
		r = clair_discover_new(&config, &p->discover);
	clair_words_finish(&given);
	if (r < 0) {
		free(p);
		return r;
	}
	p->learn = l;
	p->grouping = *grouping;
	if (listed)
		p->listed = take_ptr(*listed);
	autolock(&l->lock);
	const struct clair_pass *pass = clair_opens_newest(&l->opens);
	for (size_t i = 0; i < pass->count; i++)
		if (is_wanted(p, pass->ids[i]))
			clair_discover_open(p->discover, pass->readers[pass->by[i]].process.pid,
					    pass->ids[i]);
	l->probes[at] = p;
	atomic_store(&l->probe_count, at + 1);
	return 0;
}

/* The list of a manifest as a file, named by what it is; a bit a file that it has. */
static int write_manifest(struct clair_learn *l, const struct clair_manifest_list *m,
			  char **index, uint64_t **listed)
{
	const struct clair_catalog *c = l->config.catalog;
	autofree char *file = NULL;
	uint64_t *bits = calloc(clair_catalog_count(c) / 64 + 1, sizeof *bits);
	size_t stem = strlen(l->list_file) - strlen(".list");
	uint64_t name = XXH3_64bits(m->ids, m->count * sizeof *m->ids);

	if (!bits)
		return -ENOMEM;
	for (uint32_t i = 0; i < m->count; i++)
		bits[m->ids[i] / 64] |= 1ull << m->ids[i] % 64;
	*listed = bits;
	if (asprintf(&file, "%.*s-%016llx.list", (int)stem, l->list_file,
		     (unsigned long long)name) < 0 ||
	    asprintf(index, "list:%s", file) < 0)
		return -ENOMEM;
	return clair_learn_write_list(c, file, 0, m->ids, m->count);
}

static void probe_manifests(struct clair_learn *l, const uint32_t *opened, size_t count,
			    const struct learn_grouping *grouping)
{
	const char *index = clair_words_get(&l->given, "index");
	struct clair_manifests m;

	if (!l->config.read || !l->list_file || (index && strcmp(index, "auto")) ||
	    clair_manifests_find(l->config.catalog, l->config.read, l->config.read_arg, opened,
				 count, &m) < 0)
		return;
	for (size_t i = 0; i < m.count && !atomic_load(&l->cancel); i++) {
		autofree char *list = NULL;
		autofree uint64_t *listed = NULL;
		int r = write_manifest(l, &m.lists[i], &list, &listed);

		if (r == 0)
			r = start_probe(l, list, &listed, grouping);
		if (r < 0)
			log_warning("a manifest cannot be tried as the data set's order: %s",
				    strerror(-r));
	}
	clair_manifests_finish(&m);
}

void clair_learn_probe(struct clair_learn *l)
{
	struct learn_grouping grouping = { .group = 1 };
	struct clair_pass first = { 0 };
	uint32_t opened[LOOKED];
	size_t count = 0;

	pthread_mutex_lock(&l->lock);
	const struct clair_pass *p = clair_opens_newest(&l->opens);
	int r = clair_learn_copy_pass(p, p->count, &first);
	pthread_mutex_unlock(&l->lock);
	if (r == 0) {
		clair_learn_find_grouping(l->config.catalog, &first, &grouping);
		/* A name without its ending is that of the first file of a sample. */
		for (size_t i = 0; i < first.count && count < LOOKED; i++)
			if (grouping.group == 1 ||
			    clair_learn_is_first(l->config.catalog, &grouping, first.ids[i]))
				opened[count++] = first.ids[i];
		probe_manifests(l, opened, count, &grouping);
		if (grouping.group > 1)
			start_probe(l, NULL, NULL, &grouping);
	}
	pthread_mutex_lock(&l->lock);
	if (grouping.group > 1)
		l->state.group = grouping.group;
	pthread_mutex_unlock(&l->lock);
	clair_learn_free_pass(&first);
}
