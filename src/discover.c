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

/* Numbers of opens at which it is tried (again), and how hard: all seeds not before that is
 * worth it. */
static const struct {
	size_t opens;
	enum effort effort;
} steps[] = { { 24, QUICK },	{ 48, CHEAP },	   { 96, QUICK },   { 200, CHEAP },
	      { 400, DEAR },	{ 800, CHEAP },	   { 1600, DEAREST }, { 3200, CHEAP },
	      { 6400, DEAREST }, { 12800, CHEAP } };
#define STEPS (sizeof steps / sizeof steps[0])
/* Processes whose environment is read. */
#define MOST_ASKED 64

static void set_state(struct clair_discover *d, const char *state)
{
	pthread_mutex_lock(&d->lock);
	d->state = state;
	pthread_mutex_unlock(&d->lock);
}

/* How launchers tell a process its place: torchrun, Open MPI, PMI, Slurm. The first of them
 * that is there is right. */
static const struct {
	const char *world, *rank;
} places[] = { { "WORLD_SIZE=", "RANK=" },
	       { "OMPI_COMM_WORLD_SIZE=", "OMPI_COMM_WORLD_RANK=" },
	       { "PMI_SIZE=", "PMI_RANK=" },
	       { "SLURM_NTASKS=", "SLURM_PROCID=" } };
#define PLACES (sizeof places / sizeof places[0])

static bool read_number(const char *text, const char *name, uint32_t *value)
{
	char *end;
	size_t length = strlen(name);

	if (strncmp(text, name, length))
		return false;
	unsigned long number = strtoul(text + length, &end, 10);
	if (end == text + length || *end || number > 1u << 24)
		return false;
	*value = (uint32_t)number;
	return true;
}

/* World and rank of a reader. */
static void read_environment(struct clair_discover *d, pid_t pid)
{
	uint32_t world[PLACES] = { 0 }, rank[PLACES] = { 0 };
	char path[64], text[32768];
	size_t place = 0;

	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	autofclose FILE *f = fopen(path, "re");
	size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
	text[n] = '\0';
	for (char *p = text; p < text + n; p += strlen(p) + 1)
		for (size_t i = 0; i < PLACES; i++)
			if (!read_number(p, places[i].world, &world[i]))
				read_number(p, places[i].rank, &rank[i]);
	while (place < PLACES && !world[place])
		place++;
	if (place == PLACES || rank[place] >= world[place])
		return;
	autolock(&d->lock);
	d->several = d->several || (d->by_environment && d->rank != rank[place]);
	if (!d->world) {
		d->world = world[place];
		d->rank = rank[place];
		d->by_environment = true;
	}
}

/* Whether the open is one more of the same by the same thread; *NEW: a thread that was not seen
 * of late. lock */
static bool is_repeat(struct clair_discover *d, pid_t pid, uint32_t id, bool *new)
{
	unsigned at = (unsigned)pid * 2654435761u >> 24;
	bool same = d->count && d->readers[at].pid == pid;
	bool repeat = same && d->readers[at].last == id;

	*new = !same;
	d->readers[at].pid = pid;
	d->readers[at].last = id;
	return repeat;
}

/* lock */
static bool keep(struct clair_discover *d, pid_t pid, uint32_t id)
{
	if (d->count == d->room) {
		size_t room = d->room ? d->room * 2 : 1024;
		uint32_t *ids = realloc(d->ids, room * sizeof *ids);
		if (ids)
			d->ids = ids;
		pid_t *pids = realloc(d->pids, room * sizeof *pids);
		if (pids)
			d->pids = pids;
		if (!ids || !pids)
			return false;
		d->room = room;
	}
	d->ids[d->count] = id;
	d->pids[d->count++] = pid;
	return true;
}

void clair_discover_open(struct clair_discover *d, pid_t pid, uint32_t id)
{
	bool ask = false, new;

	pthread_mutex_lock(&d->lock);
	if (!d->settled && d->count < CLAIR_DISCOVER_OPENS && !is_repeat(d, pid, id, &new) &&
	    keep(d, pid, id)) {
		if (d->count == 1)
			d->begun_ns = clair_now_ns();
		ask = pid > 0 && new && d->asked < MOST_ASKED;
		d->asked += ask;
		d->several = d->several || d->asked == MOST_ASKED;
		for (size_t i = 0; i < STEPS; i++)
			if (d->count == steps[i].opens)
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
		if (steps[i].opens > done && steps[i].opens <= d->count)
			return steps[i].opens;
	return d->finishing && d->count > done ? d->count : 0;
}

/* How hard it is tried with COUNT opens; when no more come, as hard as it can be. lock */
static enum effort effort_of(const struct clair_discover *d, size_t count)
{
	/* When more opens wait, they may say it at a lower price. */
	bool more = next_step(d, count) > 0;

	for (size_t i = 0; i < STEPS; i++)
		if (steps[i].opens == count && (more || !d->finishing))
			return more && steps[i].effort > CHEAP ? CHEAP : steps[i].effort;
	return more ? CHEAP : DEAREST;
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

/* A copy of the first COUNT opens; false: they are gone. */
static bool copy_opens(struct clair_discover *d, size_t count, uint64_t generation,
		       uint32_t *ids, pid_t *pids)
{
	autolock(&d->lock);
	bool enough = d->generation == generation && d->count >= count;
	if (enough) {
		memcpy(ids, d->ids, count * sizeof *ids);
		memcpy(pids, d->pids, count * sizeof *pids);
	}
	atomic_store(&d->cancel, d->stopping || !enough);
	return enough;
}

static void think(struct clair_discover *d, size_t count, enum effort effort,
		  uint64_t generation)
{
	struct clair_words words = { 0 };
	autofree uint32_t *ids = malloc(count * sizeof *ids);
	autofree pid_t *pids = malloc(count * sizeof *pids);
	struct opened opened;
	uint32_t folder = 0;

	if (!ids || !pids || !copy_opens(d, count, generation, ids, pids) ||
	    clair_opened_init(&opened, ids, pids, count) < 0)
		return;
	if (clair_discover_try(d, &opened, effort, &folder, &words))
		hand_over(d, folder, &words, generation);
	clair_opened_finish(&opened);
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
		enum effort effort = effort_of(d, count);
		d->state = effort > CHEAP ? "searching all seeds" : "trying usual orders and seeds";
		pthread_mutex_unlock(&d->lock);
		think(d, count, effort, generation);
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
	/* On a busy machine it would not come to see that. */
	pthread_setschedparam(d->thread, SCHED_OTHER, &(struct sched_param){ 0 });
	pthread_join(d->thread, NULL);
	pthread_mutex_destroy(&d->lock);
	pthread_cond_destroy(&d->change);
	clair_words_finish(&d->given);
	free(d->ids);
	free(d->pids);
	free(d);
}
