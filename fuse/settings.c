/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: from the options at the start, and by attributes while mounted. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "finder.h"
#include "log.h"
#include "mount.h"
#include "words.h"

/* The words of the stream of FOLDER: the common ones, then its own. */
static int words_of(const struct clair_mount *m, uint32_t folder, struct clair_words *words)
{
	char path[4096];

	clair_catalog_path(m->catalog, folder, path, sizeof path);
	return clair_options_stream_words(m->options, path, words);
}

/* Whether PATH is, or leads to, the folder of a stream that was named. */
static bool has_stream(const struct clair_options *o, const char *path)
{
	size_t n = strlen(path);

	for (size_t i = 0; i < o->stream_count; i++)
		if (!strncmp(o->streams[i].path, path, n) &&
		    (!o->streams[i].path[n] || o->streams[i].path[n] == '/'))
			return true;
	return false;
}

/* What the words for all streams are about, where some folders have words of their own: when
 * all else lies in one folder (train/ beside a named val/), that one. */
static uint32_t common_folder(const struct clair_mount *m)
{
	const struct clair_entry *root = clair_catalog_entry(m->catalog, 0);
	uint32_t only = 0;

	for (uint32_t i = 0; m->options->stream_count && i < root->count; i++) {
		uint32_t id = root->first + i;

		if (clair_catalog_entry(m->catalog, id)->kind != CLAIR_FOLDER)
			return 0;
		if (has_stream(m->options, clair_catalog_name(m->catalog, id)))
			continue;
		if (only)
			return 0;
		only = id;
	}
	return only;
}

static int make_stream(struct clair_mount *m, uint32_t folder,
		       const struct clair_words *words, char **error)
{
	struct clair_stream *stream;

	int r = clair_stream_new(m->catalog, folder, words, &stream, error);
	return r < 0 ? r : clair_stage_set_stream(m->stage, stream);
}

int clair_mount_streams(struct clair_mount *m, char **error)
{
	struct clair_words words = { 0 };
	int r = 0;

	/* The whole source is a stream unless the streams that were named say it all. */
	if (!m->options->stream_count || m->options->order.count) {
		uint32_t folder = common_folder(m);

		r = words_of(m, folder, &words);
		if (r == 0)
			r = make_stream(m, folder, &words, error);
		clair_words_finish(&words);
	}
	for (size_t i = 0; r == 0 && i < m->options->stream_count; i++) {
		const char *path = m->options->streams[i].path;
		uint32_t folder = clair_catalog_find(m->catalog, path);

		if (folder != CLAIR_NO_ID)
			folder = clair_catalog_resolve(m->catalog, folder);
		if (folder == CLAIR_NO_ID ||
		    clair_catalog_entry(m->catalog, folder)->kind != CLAIR_FOLDER)
			return clair_bad(error, "stream=%s: there is no such folder in %s",
					 path, m->source_path);
		r = words_of(m, folder, &words);
		if (r == 0)
			r = make_stream(m, folder, &words, error);
		clair_words_finish(&words);
	}
	return r;
}

/* What was set while mounted, by folder: on top of the options. */
static pthread_mutex_t set_lock = PTHREAD_MUTEX_INITIALIZER;
static struct set_words {
	uint32_t folder;
	struct clair_words words;
	bool has_epoch; /* set last, of an order that was there */
	uint64_t epoch;
} *sets;
static size_t set_count;

static struct set_words *find_set(uint32_t folder)
{
	for (size_t i = 0; i < set_count; i++)
		if (sets[i].folder == folder)
			return &sets[i];
	return NULL;
}

static struct set_words *set_of(uint32_t folder)
{
	struct set_words *there = find_set(folder);

	if (there)
		return there;
	struct set_words *longer = realloc(sets, (set_count + 1) * sizeof *sets);
	if (!longer)
		return NULL;
	sets = longer;
	sets[set_count] = (struct set_words){ .folder = folder };
	return &sets[set_count++];
}

/* The stream that FOLDER speaks for: the mount's root speaks for that of the common words. */
static uint32_t folder_of_stream(const struct clair_mount *m, uint32_t folder)
{
	return folder ? folder : common_folder(m);
}

static int set_epoch(struct clair_mount *m, uint32_t folder, const char *value, char **error)
{
	struct clair_words one = { 0 };
	uint64_t epoch = 0;

	int r = clair_words_set(&one, "epoch", value);
	if (r == 0)
		r = clair_words_u64(&one, "epoch", 0, &epoch, error);
	clair_words_finish(&one);
	if (r == 0)
		r = clair_stage_set_epoch(m->stage, folder, epoch);
	if (r == 0) {
		autolock(&set_lock);
		struct set_words *set = set_of(folder);
		if (set) {
			set->has_epoch = true;
			set->epoch = epoch;
		}
	}
	return r;
}

static int apply(struct clair_mount *m, uint32_t folder, struct set_words *set,
		 const char *word, const char *value, char **error)
{
	struct clair_words words = { 0 }, before = { 0 };

	int r = clair_words_copy(&before, &set->words);
	if (r == 0)
		r = clair_options_set_order_word(&set->words, word, value, error);
	if (r == 0)
		r = words_of(m, folder, &words);
	if (r == 0)
		r = clair_words_copy(&words, &set->words);
	if (r == 0 && clair_options_says_order(&words))
		clair_finder_given(m->finder);
	if (r == 0)
		r = make_stream(m, folder, &words, error);
	if (r < 0) {
		clair_words_finish(&set->words);
		set->words = before;
	} else {
		clair_words_finish(&before);
	}
	clair_words_finish(&words);
	return r;
}

int clair_mount_get(struct clair_mount *m, uint32_t folder, const char *word, char *value,
		    size_t size)
{
	struct clair_words words = { 0 };

	folder = folder_of_stream(m, folder);
	autolock(&set_lock);
	struct set_words *set = find_set(folder);
	if (set && set->has_epoch && !strcmp(word, "epoch"))
		return snprintf(value, size, "%llu", (unsigned long long)set->epoch) <
				       (int)size ?
			       0 :
			       -ERANGE;
	int r = words_of(m, folder, &words);
	if (r == 0 && set)
		r = clair_words_copy(&words, &set->words);
	const char *text = clair_words_get(&words, word);
	if (r == 0 && (!text || snprintf(value, size, "%s", text) >= (int)size))
		r = text ? -ERANGE : -ENOENT;
	clair_words_finish(&words);
	return r;
}

int clair_mount_set(struct clair_mount *m, uint32_t folder, const char *word,
		    const char *value, char **error)
{
	if (!clair_options_is_order_word(word))
		return clair_bad(error,
				 "%s: cannot be set while mounted; words that describe an "
				 "order can (seed, epoch, sampler, …)",
				 word);
	int r = clair_options_check_word(word, value, error);
	if (r < 0)
		return r;
	folder = folder_of_stream(m, folder);
	if (!strcmp(word, "epoch")) {
		r = set_epoch(m, folder, value, error);
		/* No order yet: it is part of what will make one. */
		if (r != -ENOENT)
			return r;
	}
	autolock(&set_lock);
	struct set_words *set = set_of(folder);
	return set ? apply(m, folder, set, word, value, error) : -ENOMEM;
}
