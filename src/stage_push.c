/* SPDX-License-Identifier: BSD-3-Clause */
/* What workers do to the kernel's page cache. No locks are held around any of it but the
 * turn, which no request handler takes. */
#include "stage_internal.h"

#include <errno.h>

#include "log.h"

/* Readers that keep a sample open or mapped for longer own its pages from then on. */
#define BUSY_NS (10 * CLAIR_NS_PER_S)
/* When all are in use: the first and the longest pause before they are tried again. */
#define PAUSE_NS (4 * CLAIR_NS_PER_MS)
#define PAUSE_MOST_NS (128 * CLAIR_NS_PER_MS)

/* FRESH: the kernel is made to know inode and name first. */
static int open_mount(struct clair_stage *st, uint32_t id, bool fresh)
{
	int fd = st->config.kernel->open(st->config.kernel->self, id, fresh);

	if (fd == -ENOTCONN) {
		autolock(&st->lock);
		st->gone = true;
	}
	return fd;
}

int stage_push_bytes(struct clair_stage *st, uint32_t id, int *fd, uint64_t offset,
		     const void *data, size_t size)
{
	const struct clair_kernel *k = st->config.kernel;
	int r = 0;

	for (int try = 0; try < 3; try++) {
		if (*fd < 0)
			*fd = open_mount(st, id, true);
		if (*fd < 0)
			return *fd;
		pthread_mutex_lock(&st->turn);
		r = k->push(k->self, id, offset, data, size);
		pthread_mutex_unlock(&st->turn);
		if (r != -ENOENT)
			break;
		/* The kernel forgot the inode meanwhile. */
		close(*fd);
		*fd = -1;
	}
	if (r == 0)
		clair_count(&st->config.stats->pushed_bytes, size);
	return r;
}

void stage_settle(struct clair_stage *st, uint32_t id, bool keep, int r)
{
	struct sample *x = &st->samples[id];
	uint64_t size = sample_size(st, id);

	if (r == 0 && !(x->flags & F_CHANGED)) {
		x->state = keep ? S_KEPT : S_STAGED;
		stage_queue_drop(st, id);
		return;
	}
	x->state = S_ABSENT;
	if (x->flags & F_CHANGED) /* the push may have come after the kernel was told */
		stage_queue_invalid(st, id);
	stage_give(keep ? &st->ram : &st->staging, size);
	if (keep)
		stage_unhomed(st, id);
	if (r == -ESTALE)
		stage_mark_changed(st, id);
	stage_kick(st);
}

void stage_run_flight(struct clair_stage *st, struct flight *f)
{
	const struct clair_kernel *k = st->config.kernel;
	autoclose int fd = -1;
	int r = 0;

	if (!f->data)
		r = flight_load(st, f);
	pthread_mutex_lock(&st->lock);
	if (!f->loaded)
		flight_finish(st, f, r);
	/* Where pages come and go, touching them costs more than it saves. */
	bool touches = st->keep == CLAIR_KEEP_KERNEL;
	pthread_mutex_unlock(&st->lock);
	if (r == 0) {
		flight_store(st, f);
		r = stage_push_bytes(st, f->id, &fd, 0, f->data, f->size);
		if (r == 0 && touches)
			k->touch(k->self, fd, f->size);
	}
	pthread_mutex_lock(&st->lock);
	stage_forget_arena(st, f->id, f->arena_at);
	stage_settle(st, f->id, f->keep, r);
	bool spill = f->spill && f->loaded && !f->error;
	if (!f->held)
		flight_unlist(st, f);
	pthread_mutex_unlock(&st->lock);
	if (spill)
		flight_spill(st, f);
	autolock(&st->lock);
	flight_put(st, f);
}

/* 1: dropped, 0: a reader has it, or a negative errno. */
static int drop_one(struct clair_stage *st, uint32_t id)
{
	const struct clair_kernel *k = st->config.kernel;
	autoclose int fd = open_mount(st, id, false);

	if (fd < 0)
		return fd;
	int r = k->unused(k->self, fd);
	if (r == 0)
		return 0;
	/* Unknown (no leases here): it was closed as far as the watch saw. */
	r = k->drop(k->self, fd, 0, sample_size(st, id));
	return r < 0 ? r : 1;
}

void stage_run_drop(struct clair_stage *st, struct job *job)
{
	int64_t now = clair_now_ns();

	for (size_t i = 0; i < job->drop_count; i++) {
		struct drop_entry e = job->drops[i];
		int r = drop_one(st, e.id);

		autolock(&st->lock);
		struct sample *x = &st->samples[e.id];
		if (x->state != S_DROPPING)
			continue;
		if (r == 0 && now - e.since < BUSY_NS) {
			x->state = S_STAGED;
			stage_queue_drop(st, e.id);
			if (x->flags & F_QUEUED)
				st->drops[(st->drop_first + st->drop_count - 1) %
					  st->drop_room].since = e.since;
			st->busy_run++;
			continue;
		}
		if (r == 1)
			clair_count(&st->config.stats->dropped_bytes,
				    sample_size(st, e.id));
		stage_uncount(st, e.id);
		x->account = A_IDLE;
		st->busy_run = 0;
		st->drop_pause = 0;
	}
	autolock(&st->lock);
	if (st->busy_run && st->busy_run >= st->drop_count) {
		st->busy_run = 0;
		st->drop_pause = st->drop_pause ? 2 * st->drop_pause : PAUSE_NS;
		if (st->drop_pause > PAUSE_MOST_NS)
			st->drop_pause = PAUSE_MOST_NS;
		st->drop_not_before = clair_now_ns() + st->drop_pause;
	}
	st->starved = false;
	stage_kick(st);
}

/* Memory that all groups leave to us must hold what we keep and some more, else the kernel
 * drops pages behind our back. */
static bool memory_is_tight(const struct clair_stage *st)
{
	uint64_t want = st->ram.limit + st->staging.limit;

	return clair_memory_limit() < want + want / 4;
}

void stage_decide_keep(struct clair_stage *st)
{
	const struct clair_kernel *k = st->config.kernel;
	enum clair_keep keep = st->config.keep;
	uint32_t id = CLAIR_NO_ID;

	if (keep == CLAIR_KEEP_AUTO) {
		pthread_mutex_lock(&st->lock);
		for (size_t i = 0; i < st->stream_count && id == CLAIR_NO_ID; i++)
			for (size_t l = 0; l < st->streams[i].lane_count; l++)
				if (st->streams[i].lanes[l].now &&
				    st->streams[i].lanes[l].now->count)
					id = st->streams[i].lanes[l].now->ids[0];
		pthread_mutex_unlock(&st->lock);
		autoclose int fd = id == CLAIR_NO_ID ? -1 : open_mount(st, id, true);
		bool told = fd >= 0 && k->resident(k->self, fd, sample_size(st, id)) >= 0;
		keep = told && !memory_is_tight(st) ? CLAIR_KEEP_KERNEL : CLAIR_KEEP_ARENA;
	}
	struct clair_arena *arena = NULL;
	uint32_t *at = NULL;
	uint64_t *hashes = NULL;
	if (keep == CLAIR_KEEP_ARENA && st->ram.limit) {
		int r = clair_arena_new(st->ram.limit, &arena);
		if (r < 0) {
			errno = -r;
			log_error("arena of %llu bytes: %m; nothing is kept in memory",
				  (unsigned long long)st->ram.limit);
		}
		at = malloc(sizeof *at * st->count);
		hashes = st->hashes ? NULL : malloc(sizeof *hashes * st->count);
		if (!at || (!hashes && !st->hashes)) {
			clair_arena_free(arena);
			arena = NULL;
		}
	}
	autolock(&st->lock);
	st->arena = arena;
	st->arena_at = at;
	if (hashes)
		st->hashes = hashes;
	st->keep = keep;
	pthread_cond_broadcast(&st->quiet);
}
