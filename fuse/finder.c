/* SPDX-License-Identifier: BSD-3-Clause */
#include "finder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "discover.h"
#include "log.h"
#include "mount.h"
#include "remember.h"

/* How often, in opens, it is looked whether what was found still holds. */
#define CHECK_OPENS 64

struct clair_finder {
	struct clair_mount *mount;
	struct clair_discover *discover;
	_Atomic bool found;
	_Atomic uint32_t folder; /* of the stream that was found */
	_Atomic uint64_t opens;
};

/* The thinking thread has an answer: make it the stream. */
static bool found(void *arg, uint32_t folder, const struct clair_words *answer,
		  const uint32_t *ids, size_t count)
{
	struct clair_finder *f = arg;
	struct clair_mount *m = f->mount;
	struct clair_words words = { 0 };
	struct clair_stream *stream;
	char text[32], *error = NULL;
	double seconds;
	uint64_t opens;

	clair_discover_state(f->discover, &seconds, &opens);
	int r = clair_words_copy(&words, answer);
	snprintf(text, sizeof text, "%zu", count);
	if (r == 0)
		r = clair_words_set(&words, "opens_to_find", text);
	snprintf(text, sizeof text, "%.3f", seconds);
	if (r == 0)
		r = clair_words_set(&words, "seconds_to_find", text);
	if (r == 0)
		r = clair_stream_new(m->catalog, folder, &words, &stream, &error);
	clair_words_finish(&words);
	if (r == 0)
		r = clair_stage_set_stream(m->stage, stream);
	if (r < 0) {
		log_warning("an order was found that cannot be used: %s",
			    error ? error : strerror(-r));
		free(error);
		return false;
	}
	clair_stage_replay(m->stage, folder, ids, count);
	atomic_store(&f->folder, folder);
	atomic_store(&f->opens, 0);
	atomic_store(&f->found, true);
	/* From now on opens need not reach the daemon. Where folders cannot be watched they
	 * must; that flag is set by the watch. */
	if (!atomic_load(&m->unwatched))
		atomic_store(&m->answer_opens, false);
	log_info("the order was found after %zu opens: %s over %s, seed %s", count,
		 clair_words_get(answer, "sampler"), clair_words_get(answer, "index"),
		 clair_words_get(answer, "seed") ? clair_words_get(answer, "seed") : "none");
	return true;
}

static bool is_given(const struct clair_words *words)
{
	const char *seed = clair_words_get(words, "seed");
	const char *sampler = clair_words_get(words, "sampler");

	if (seed && strcmp(seed, "auto"))
		return true;
	return sampler && strcmp(sampler, "auto");
}

int clair_finder_start(struct clair_mount *m, struct clair_finder **out)
{
	char memory[4200];
	bool given = is_given(&m->options->order);

	*out = NULL;
	for (size_t i = 0; i < m->options->stream_count; i++)
		given = given || is_given(&m->options->streams[i].words);
	if (given)
		return 0;
	struct clair_finder *f = calloc(1, sizeof *f);
	if (!f)
		return -ENOMEM;
	f->mount = m;
	/* Beside the first cache folder, where the next node's job looks, too. */
	bool remembers = false;
	if (m->options->cache_count)
		remembers = snprintf(memory, sizeof memory, "%s/order.json",
				     m->options->caches[0].path) < (int)sizeof memory;
	else
		remembers = clair_remember_path(m->catalog, memory, sizeof memory) == 0;
	struct clair_discover_config config = {
		.catalog = m->catalog,
		.given = &m->options->order,
		.threads = m->options->discover_threads,
		.memory = remembers ? memory : NULL,
		.found = found,
		.arg = f,
	};
	int r = clair_discover_new(&config, &f->discover);
	if (r < 0) {
		free(f);
		return r;
	}
	atomic_store(&m->answer_opens, true);
	*out = f;
	return 0;
}

void clair_finder_open(struct clair_finder *f, pid_t pid, uint32_t id)
{
	if (!f)
		return;
	/* What was found does not hold any more: look again, by the watch's events. */
	if (atomic_load(&f->found)) {
		if (atomic_fetch_add(&f->opens, 1) % CHECK_OPENS != CHECK_OPENS - 1 ||
		    clair_stage_trusted(f->mount->stage, atomic_load(&f->folder)))
			return;
		log_info("the opens do not follow the order that was found: looking again");
		atomic_store(&f->found, false);
		clair_discover_again(f->discover);
	}
	clair_discover_open(f->discover, pid, id);
}

json_t *clair_finder_json(struct clair_finder *f)
{
	double seconds;
	uint64_t opens;

	if (!f)
		return NULL;
	const char *state = clair_discover_state(f->discover, &seconds, &opens);
	return json_pack("{s:s, s:I, s:f}", "state", state, "opens", (json_int_t)opens,
			 "seconds", seconds);
}

void clair_finder_stop(struct clair_finder *f)
{
	if (!f)
		return;
	clair_discover_free(f->discover);
	free(f);
}
