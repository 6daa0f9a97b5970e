/* SPDX-License-Identifier: BSD-3-Clause */
#include "discover_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "log.h"

/* Numbers of opens at which it is tried (again). */
static const size_t steps[] = { 48, 96, 200, 400, 800, 1600, 3200, 6400, 12800 };
#define STEPS (sizeof steps / sizeof steps[0])
/* From this step on all 2^32 seeds are searched: before, it could be in vain. */
#define FULL_FROM 300

static void set_state(struct clair_discover *d, const char *state)
{
	pthread_mutex_lock(&d->lock);
	d->state = state;
	pthread_mutex_unlock(&d->lock);
}

/* WORLD_SIZE and RANK of a reader. */
static void read_environment(struct clair_discover *d, pid_t pid)
{
	char path[64], text[32768];
	uint32_t world = 0, rank = 0;

	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	autofclose FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
	text[n] = '\0';
	for (char *p = text; p < text + n; p += strlen(p) + 1) {
		if (!strncmp(p, "WORLD_SIZE=", 11))
			world = (uint32_t)strtoul(p + 11, NULL, 10);
		else if (!strncmp(p, "RANK=", 5))
			rank = (uint32_t)strtoul(p + 5, NULL, 10);
	}
	pthread_mutex_lock(&d->lock);
	d->world = world && rank < world ? world : 1;
	d->rank = world && rank < world ? rank : 0;
	pthread_mutex_unlock(&d->lock);
}

void clair_discover_open(struct clair_discover *d, pid_t pid, uint32_t id)
{
	bool ask = false;

	pthread_mutex_lock(&d->lock);
	if (!d->settled && d->count < CLAIR_DISCOVER_OPENS &&
	    (!d->count || d->ids[d->count - 1] != id)) {
		if (d->count == d->room) {
			size_t room = d->room ? d->room * 2 : 1024;
			uint32_t *ids = realloc(d->ids, room * sizeof *ids);
			if (ids) {
				d->ids = ids;
				d->room = room;
			}
		}
		if (d->count < d->room)
			d->ids[d->count++] = id;
		if (d->count == 1)
			d->begun_ns = clair_now_ns();
		ask = pid > 0 && !d->world;
		for (size_t i = 0; i < STEPS; i++)
			if (d->count == steps[i])
				pthread_cond_signal(&d->change);
	}
	pthread_mutex_unlock(&d->lock);
	if (ask)
		read_environment(d, pid);
}

void clair_discover_again(struct clair_discover *d)
{
	pthread_mutex_lock(&d->lock);
	d->generation++;
	d->count = 0;
	d->settled = d->answered = false;
	atomic_store(&d->cancel, true);
	pthread_cond_signal(&d->change);
	pthread_mutex_unlock(&d->lock);
}

/* --- thinking --------------------------------------------------------------------------- */

/* The next step that the opens allow, after DONE opens were tried: each in its turn, since a
 * step that was passed over cannot be made up for when all samples have been opened. lock */
static size_t next_step(const struct clair_discover *d, size_t done)
{
	for (size_t i = 0; i < STEPS; i++)
		if (steps[i] > done && steps[i] <= d->count)
			return steps[i];
	return d->finishing && d->count > done ? d->count : 0;
}

static bool hand_over(struct clair_discover *d, uint32_t folder,
		      const struct clair_words *words, uint64_t generation)
{
	autofree uint32_t *ids = NULL;

	pthread_mutex_lock(&d->lock);
	bool current = d->generation == generation;
	size_t count = d->count;
	ids = malloc((count + 1) * sizeof *ids);
	if (ids)
		memcpy(ids, d->ids, count * sizeof *ids);
	if (current)
		d->settled = d->answered = true;
	pthread_mutex_unlock(&d->lock);
	if (!current || !ids)
		return false;
	if (d->config.found(d->config.arg, folder, words, ids, count))
		return true;
	pthread_mutex_lock(&d->lock);
	d->settled = d->answered = false;
	pthread_mutex_unlock(&d->lock);
	return false;
}

static void think(struct clair_discover *d, size_t count, bool full, uint64_t generation)
{
	struct clair_words words = { 0 };
	autofree uint32_t *ids = malloc(count * sizeof *ids);
	uint32_t folder = 0;

	if (!ids)
		return;
	pthread_mutex_lock(&d->lock);
	bool enough = d->generation == generation && d->count >= count;
	if (enough)
		memcpy(ids, d->ids, count * sizeof *ids);
	atomic_store(&d->cancel, d->stopping || !enough);
	pthread_mutex_unlock(&d->lock);
	if (enough && clair_discover_try(d, ids, count, full, &folder, &words))
		hand_over(d, folder, &words, generation);
	clair_words_finish(&words);
}

static void *discover_thread(void *arg)
{
	struct clair_discover *d = arg;
	struct sched_param idle = { 0 };
	size_t done = 0;
	uint64_t generation = 0;

	pthread_setschedparam(pthread_self(), SCHED_IDLE, &idle);
	pthread_mutex_lock(&d->lock);
	while (!d->stopping) {
		if (generation != d->generation) {
			generation = d->generation;
			done = 0;
		}
		size_t count = d->settled ? 0 : next_step(d, done);
		if (!count) {
			if (d->finishing) {
				/* All has been tried. */
				d->finishing = false;
				pthread_cond_broadcast(&d->change);
			}
			pthread_cond_wait(&d->change, &d->lock);
			continue;
		}
		/* When more opens wait, they may say it at a lower price. */
		bool last = !next_step(d, count);
		bool full = last && (count >= FULL_FROM || d->finishing);
		d->state = "trying usual orders and seeds";
		pthread_mutex_unlock(&d->lock);
		think(d, count, full, generation);
		set_state(d, "waiting for more opens");
		pthread_mutex_lock(&d->lock);
		done = count;
	}
	pthread_mutex_unlock(&d->lock);
	return NULL;
}

bool clair_discover_finish(struct clair_discover *d)
{
	pthread_mutex_lock(&d->lock);
	d->finishing = true;
	pthread_cond_broadcast(&d->change);
	while (d->finishing && !d->answered)
		pthread_cond_wait(&d->change, &d->lock);
	bool answered = d->answered;
	pthread_mutex_unlock(&d->lock);
	return answered;
}

const char *clair_discover_state(struct clair_discover *d, double *seconds, uint64_t *opens)
{
	autolock(&d->lock);
	*opens = d->count;
	*seconds = d->count ? (double)(clair_now_ns() - d->begun_ns) / 1e9 : 0;
	return d->answered ? "found" : d->state;
}

/* --- life --------------------------------------------------------------------------------- */

int clair_discover_new(const struct clair_discover_config *config,
		       struct clair_discover **out)
{
	struct clair_discover *d = calloc(1, sizeof *d);
	const char *world;

	if (!d)
		return -ENOMEM;
	d->config = *config;
	pthread_mutex_init(&d->lock, NULL);
	pthread_cond_init(&d->change, NULL);
	d->state = "waiting for opens";
	int r = config->given ? clair_words_copy(&d->given, config->given) : 0;
	if (r == 0 && config->memory) {
		d->memory = strdup(config->memory);
		r = d->memory ? 0 : -ENOMEM;
	}
	if (!d->config.threads) {
		long cores = sysconf(_SC_NPROCESSORS_ONLN);
		d->config.threads = cores > 1 ? (unsigned)cores - 1 : 1;
	}
	world = clair_words_get(&d->given, "world");
	if (world) {
		const char *ranks = clair_words_get(&d->given, "ranks");
		d->world = (uint32_t)strtoul(world, NULL, 10);
		d->rank = ranks ? (uint32_t)strtoul(ranks, NULL, 10) : 0;
	}
	if (r == 0)
		r = -pthread_create(&d->thread, NULL, discover_thread, d);
	if (r < 0) {
		clair_words_finish(&d->given);
		free(d->memory);
		free(d);
		return r;
	}
	*out = d;
	return 0;
}

void clair_discover_free(struct clair_discover *d)
{
	if (!d)
		return;
	pthread_mutex_lock(&d->lock);
	d->stopping = true;
	atomic_store(&d->cancel, true);
	pthread_cond_broadcast(&d->change);
	pthread_mutex_unlock(&d->lock);
	pthread_join(d->thread, NULL);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->change);
	clair_words_finish(&d->given);
	free(d->memory);
	free(d->ids);
	free(d);
}
