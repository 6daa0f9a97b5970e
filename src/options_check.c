/* SPDX-License-Identifier: BSD-3-Clause */
/* What comes from the environment, and what can be said when all options are known. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "options.h"
#include "sampler.h"

/* --- environment ------------------------------------------------------------------- */

static const char *first_of(const char *const *names)
{
	for (; *names; names++) {
		const char *value = getenv(*names);
		char *end;
		if (!value || !*value)
			continue;
		strtoul(value, &end, 10);
		if (!*end)
			return value;
	}
	return NULL;
}

/* In a Slurm batch script, outside of a step, this node's tasks read here: with
 * SLURM_TASKS_PER_NODE=4(x2),3 and the default distribution node 1 has ranks 4 to 7.
 * Writes `FIRST-LAST`, or returns false. */
static bool batch_ranks(uint64_t world, char *text, size_t size)
{
	const char *tasks = getenv("SLURM_TASKS_PER_NODE"), *node = getenv("SLURM_NODEID");
	uint64_t first = 0, left = node ? strtoul(node, NULL, 10) : 0;
	char *end;

	if (!tasks || getenv("SLURM_STEP_ID") || getenv("SLURM_STEPID"))
		return false;
	for (const char *p = tasks;; p = end + 1) {
		uint64_t each = strtoul(p, &end, 10), times = 1;

		if (end == p || !each || each > world)
			return false;
		if (!strncmp(end, "(x", 2)) {
			times = strtoul(end + 2, &end, 10);
			if (*end++ != ')')
				return false;
		}
		if (left < times) {
			first += left * each;
			snprintf(text, size, "%llu-%llu", (unsigned long long)first,
				 (unsigned long long)(first + each - 1));
			return first + each <= world;
		}
		left -= times;
		first += times * each;
		if (*end != ',' || first > world)
			return false;
	}
}

/* The world was given: with one task a node, node k of n has ranks k w / n and on. */
static int share_ranks(struct clair_options *o, const char *world, const char *tasks,
		       const char *task)
{
	uint64_t n = tasks ? strtoul(tasks, NULL, 10) : 0;
	char text[64];

	if (n < 2 || !task || clair_words_get(&o->order, "ranks") ||
	    !clair_ranks_share(strtoul(world, NULL, 10), n, strtoul(task, NULL, 10), text,
			       sizeof text))
		return 0;
	return clair_words_set(&o->order, "ranks", text);
}

int clair_options_environment(struct clair_options *o)
{
	static const char *const worlds[] = { "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
					      "PMI_SIZE", "SLURM_NTASKS", NULL };
	static const char *const ranks[] = { "RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
					     "SLURM_PROCID", NULL };
	const char *world = first_of(worlds), *rank = first_of(ranks);
	char node[64];
	int r = 0;

	if (clair_words_get(&o->order, "world"))
		return share_ranks(o, clair_words_get(&o->order, "world"), world, rank);
	if (!world || strtoul(world, NULL, 10) < 1)
		return 0;
	r = clair_words_set(&o->order, "world", world);
	bool batch = world == getenv("SLURM_NTASKS") &&
		     batch_ranks(strtoul(world, NULL, 10), node, sizeof node);
	if (batch && r == 0 && !clair_words_get(&o->order, "ranks"))
		r = clair_words_set(&o->order, "ranks", node);
	if (r == 0 && rank && !clair_words_get(&o->order, "ranks") &&
	    strtoul(rank, NULL, 10) < strtoul(world, NULL, 10))
		r = clair_words_set(&o->order, "ranks", rank);
	return r;
}

/* --- all together ------------------------------------------------------------------ */

static int check_stream(const struct clair_options *o, const struct clair_words *own,
			char **error)
{
	struct clair_words words = { 0 };
	autofree uint32_t *ranks = NULL;
	uint64_t world = 1, epoch = 0, epochs = 0;
	size_t count;

	int r = clair_words_copy(&words, &o->order);
	if (r == 0 && own)
		r = clair_words_copy(&words, own);
	if (r == 0)
		r = clair_words_uint(&words, "world", 1, UINT32_MAX, &world, error);
	const char *text = clair_words_get(&words, "ranks");
	if (r == 0 && text)
		r = clair_ranks_parse(text, (uint32_t)world, &ranks, &count, error);
	if (r == 0)
		r = clair_words_uint(&words, "epoch", 0, UINT64_MAX, &epoch, error);
	if (r == 0)
		r = clair_words_uint(&words, "epochs", 0, UINT64_MAX, &epochs, error);
	if (r == 0 && clair_words_get(&words, "epochs") && epochs > UINT64_MAX - epoch)
		r = clair_bad(error, "epochs is too large");
	clair_words_finish(&words);
	return r;
}

int clair_options_check(const struct clair_options *o, char **error)
{
	int r = check_stream(o, NULL, error);

	for (size_t i = 0; r == 0 && i < o->stream_count; i++)
		r = check_stream(o, &o->streams[i].words, error);
	for (size_t i = 0; r == 0 && i < o->cache_count; i++)
		for (size_t k = 0; r == 0 && k < i; k++)
			if (!strcmp(o->caches[i].path, o->caches[k].path))
				r = clair_bad(error, "cache=%s: given twice",
					      o->caches[i].path);
	return r;
}

/* A word for all streams does not concern a stream whose own sampler has no such word. */
static bool concerns(const char *word, const struct clair_words *own)
{
	const char *sampler = own ? clair_words_get(own, "sampler") : NULL;
	const struct clair_family *family = sampler ? clair_family_find(sampler) : NULL;
	bool is_list = sampler && !strncmp(sampler, "list:", 5);

	if (clair_options_is_common_word(word) || (!family && !is_list))
		return true;
	for (const struct clair_family_word *w = family ? family->words : NULL; w && w->name;
	     w++)
		if (!strcmp(w->name, word))
			return true;
	return false;
}

int clair_options_stream_words(const struct clair_options *o, const char *path,
			       struct clair_words *words)
{
	const struct clair_words *own = NULL;
	int r = 0;

	for (size_t i = 0; i < o->stream_count; i++)
		if (!strcmp(o->streams[i].path, path))
			own = &o->streams[i].words;
	for (size_t i = 0; r == 0 && i < o->order.count; i++)
		if (concerns(o->order.items[i].key, own))
			r = clair_words_set(words, o->order.items[i].key,
					    o->order.items[i].value);
	return r == 0 && own ? clair_words_copy(words, own) : r;
}

int clair_options_check_source(const struct clair_options *o, const char *source,
			       char **error)
{
	size_t n = strlen(source);

	for (size_t i = 0; i < o->cache_count; i++) {
		/* What is not there yet is made under its real parent. */
		autofree char *real = realpath(o->caches[i].path, NULL);
		const char *path = real ? real : o->caches[i].path;
		if (!strncmp(path, source, n) &&
		    (!path[n] || path[n] == '/' || source[n - 1] == '/'))
			return clair_bad(error,
					 "cache=%s: lies in the source %s; give a folder on "
					 "a local disk",
					 o->caches[i].path, source);
	}
	return 0;
}
