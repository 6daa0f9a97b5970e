/* SPDX-License-Identifier: BSD-3-Clause */
/* The workers: what is done next, and by how many. */
#include "stage_internal.h"

#include <errno.h>

#include "log.h"

#define STACK_BYTES (256u << 10)
#define WINDOW_NS (100 * CLAIR_NS_PER_MS)
#define FIRST_WINDOW_NS (5 * CLAIR_NS_PER_MS)
#define FEWEST 3u /* loads in flight */
#define LEAP 16u  /* entries */
#define PEER_LOADS 24u

/* Little's law: twice rate x latency, so that the rate can show what more would give. It begins
 * with few loads: a slow source shared by too many gives the first sample as late as the last,
 * and its latency under that load says nothing. */
void stage_measure(struct clair_stage *st, int64_t latency)
{
	int64_t now = clair_now_ns();

	st->window_loads++;
	if (!st->recent_latency || latency < st->recent_latency)
		st->recent_latency = latency;
	if (!st->window_begin)
		st->window_begin = now;
	int64_t window = now - st->window_begin;
	if (window < (st->settled ? WINDOW_NS : FIRST_WINDOW_NS) ||
	    window < 4 * st->recent_latency)
		return;
	double rate = (double)st->window_loads * 1e9 / (double)window;
	st->settled = st->settled || rate < st->rate * 1.25;
	st->rate = rate > st->rate * 0.9 ? rate : st->rate * 0.9;
	st->base_latency = st->base_latency && st->base_latency < st->recent_latency ?
				   st->base_latency + st->base_latency / 16 :
				   st->recent_latency;
	st->window_begin = now;
	st->window_loads = 0;
	st->recent_latency = 0;
	if (st->config.threads)
		return;
	double want = 2 * st->rate * (double)st->base_latency / 1e9 + 1;
	unsigned limit = want > MAX_WORKERS ? MAX_WORKERS : (unsigned)want;
	unsigned fewest = st->base_latency > CLAIR_NS_PER_MS ? 8 : FEWEST;
	st->limit = limit < fewest ? fewest : limit;
}

int stage_thread(struct clair_stage *st, void *(*main)(void *), pthread_t *thread)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	int r = -pthread_create(thread, &attr, main, st);
	pthread_attr_destroy(&attr);
	st->alive += r == 0;
	return r;
}

int stage_spawn(struct clair_stage *st)
{
	if (st->worker_count == MAX_WORKERS)
		return -EAGAIN;
	int r = stage_thread(st, stage_worker, &st->workers[st->worker_count]);
	st->worker_count += r == 0;
	return r;
}

/* Loads at once: the limit is the source's; what other nodes give comes beside it, from many of
 * them at a time, since one that is busy would keep the link of this one idle. */
static unsigned most_loads(const struct clair_stage *st)
{
	unsigned n = st->peers ? st->limit + PEER_LOADS : st->limit;

	return n < MAX_WORKERS ? n : MAX_WORKERS;
}

/* Whether ID would be loaded from the source. */
static bool from_source(const struct clair_stage *st, uint32_t id)
{
	const struct sample *x = &st->samples[id];

	if ((x->flags & F_ARENA) || x->disk)
		return false;
	uint16_t home = clair_peers_home(st->peers, id);
	return home == CLAIR_NO_NODE || home == clair_peers_self(st->peers);
}

static void wake_one(struct clair_stage *st)
{
	if (!st->started || st->stopping)
		return;
	if (st->idle)
		pthread_cond_signal(&st->work);
	else if (st->worker_count < most_loads(st) && stage_spawn(st) < 0 && !st->worker_count)
		log_error("no thread for staging; reads go to the source");
}

void stage_kick(struct clair_stage *st)
{
	st->kicked = true;
	wake_one(st);
}

/* --- choosing ---------------------------------------------------------------------- */

static void pick_drops(struct clair_stage *st, struct job *job)
{
	while (job->drop_count < DROP_BATCH && stage_drop_more(st)) {
		struct drop_entry e = st->drops[st->drop_first];
		struct sample *x = &st->samples[e.id];

		st->drop_first = (st->drop_first + 1) % st->drop_room;
		st->drop_count--;
		if (!(x->flags & F_QUEUED))
			continue; /* needed again meanwhile */
		stage_unqueue(st, e.id);
		if (x->state != S_STAGED || x->needs)
			continue;
		x->state = S_DROPPING;
		job->drops[job->drop_count++] = e;
	}
	if (job->drop_count)
		job->kind = J_DROP;
}

/* Reserves room for ID. 0, or -EAGAIN: not before something is dropped. */
static int reserve(struct clair_stage *st, uint32_t id, bool *keep, uint32_t *arena_at)
{
	uint64_t size = sample_size(st, id);
	bool may = stage_may_keep(st, id);

	*keep = false;
	*arena_at = CLAIR_ARENA_NONE;
	if (may && st->keep == CLAIR_KEEP_KERNEL) {
		*keep = true;
		stage_homed(st, id);
		stage_take(&st->ram, size);
		return 0;
	}
	if (!stage_fits(&st->staging, size, true))
		return -EAGAIN;
	stage_take(&st->staging, size);
	if (may)
		*arena_at = stage_arena_room(st, id);
	return 0;
}

static void unreserve(struct clair_stage *st, uint32_t id, bool keep, uint32_t arena_at)
{
	uint64_t size = sample_size(st, id);

	stage_give(keep ? &st->ram : &st->staging, size);
	if (keep)
		stage_unhomed(st, id);
	stage_forget_arena(st, id, arena_at);
}

/* ROOM: for more bytes of buffers; what READs have loaded needs none. */
static void pick_piece(struct clair_stage *st, struct job *job, bool room)
{
	for (struct large *l = st->larges; l; l = l->next) {
		struct flight *f = stage_next_piece(st, l, room);
		if (!f)
			continue;
		job->kind = J_PIECE;
		job->large = l;
		job->flight = f;
		return;
	}
}

/* Whether a directory is to have a copy of ID, which was not there before. */
static bool wants_copy(const struct clair_stage *st, uint32_t id, bool keep, uint32_t arena_at)
{
	const struct sample *x = &st->samples[id];

	return !keep && arena_at == CLAIR_ARENA_NONE && st->config.disk_count &&
	       !(x->flags & F_ARENA) && !x->disk &&
	       (!st->peers || clair_peers_keeps(st->peers, id));
}

/* Room for ID was reserved: workers stage it. NULL: no memory. */
static struct large *begin_large(struct clair_stage *st, uint32_t id, bool keep,
				 uint32_t arena_at)
{
	struct large *l = stage_new_large(st, id);

	if (!l)
		return NULL;
	l->keep = keep;
	l->arena_at = arena_at;
	l->spill = wants_copy(st, id, keep, arena_at);
	stage_add_large(st, l);
	return l;
}

struct large *stage_demand_large(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];
	uint32_t arena_at;
	bool keep;

	if (x->state != S_ABSENT || (x->flags & (F_CHANGED | F_LOADED)) || st->peers ||
	    st->keep == CLAIR_KEEP_AUTO || st->stopping || reserve(st, id, &keep, &arena_at) < 0)
		return NULL;
	struct large *l = begin_large(st, id, keep, arena_at);
	if (!l) {
		unreserve(st, id, keep, arena_at);
		return NULL;
	}
	x->state = S_FETCHING;
	x->flags &= (uint8_t)~F_USED;
	stage_kick(st);
	return l;
}

/* A reader that is faster than the pushes gets what is right before it from memory as it
 * asks; pushing that at the same time would be in vain. False: the epoch ends here. */
static bool leap(struct clair_stage *st, struct lane *lane)
{
	lane->outrun = false;
	if (lane->ahead || lane->now->count - lane->head <= LEAP)
		return false;
	for (uint32_t i = 0; i < LEAP; i++)
		lane_advance(st, lane);
	return true;
}

/* Begins the fetch of ID, the next of LANE. True: the lane went on without a job. */
static bool pick_sample(struct clair_stage *st, struct job *job, struct lane *lane,
			uint32_t id)
{
	struct sample *x = &st->samples[id];
	bool keep, large = sample_size(st, id) > PIECE;

	if (lane->outrun && (x->flags & F_ARENA) && leap(st, lane))
		return true;
	lane->outrun = false;
	uint32_t arena_at;
	struct flight *f = large ? NULL : flight_find(st, id, 0);

	if (!f && st->peers && st->ways[WAY_SOURCE].loads >= st->limit && from_source(st, id))
		return false;
	if (f && (!f->loaded || f->error)) {
		lane_advance(st, lane); /* a READ fetches it */
		return true;
	}
	if (reserve(st, id, &keep, &arena_at) < 0) {
		st->starved = true;
		return false;
	}
	bool began = true;
	if (f)
		f->holders++;
	else if (large)
		began = begin_large(st, id, keep, arena_at) != NULL;
	else
		began = (f = flight_new(st, id, 0)) != NULL;
	if (!began) {
		unreserve(st, id, keep, arena_at);
		return false;
	}
	x->state = S_FETCHING;
	x->flags &= (uint8_t)~F_USED;
	if (x->account == A_OPENED || x->account == A_SETTLED)
		x->account = A_IDLE;
	lane_advance(st, lane);
	if (large) {
		pick_piece(st, job, true);
		return false;
	}
	f->keep = keep;
	f->arena_at = arena_at;
	f->spill = wants_copy(st, id, keep, arena_at);
	job->kind = J_FLIGHT;
	job->flight = f;
	return false;
}

/* The lane whose next sample is nearest to its use. NULL: none, or job is set. */
static struct lane *nearest(struct clair_stage *st, struct job *job, uint32_t *id)
{
	struct lane *best = NULL;

	for (size_t i = 0; i < st->stream_count; i++) {
		struct stream *s = &st->streams[i];
		for (size_t l = 0; l < s->lane_count; l++) {
			struct lane *lane = &s->lanes[l];
			uint32_t next = lane_next(st, s, lane);

			if (lane->wants_then && !lane->making) {
				lane->making = true;
				job->kind = J_EPOCH;
				job->stream = i;
				job->lane = l;
				return NULL;
			}
			if (next != CLAIR_NO_ID &&
			    (!best || lane_distance(lane) < lane_distance(best))) {
				best = lane;
				*id = next;
			}
		}
	}
	return best;
}

static void pick(struct clair_stage *st, struct job *job)
{
	struct lane *lane;
	uint32_t id = CLAIR_NO_ID;

	job->kind = J_NONE;
	job->drop_count = 0;
	if (st->gone)
		return;
	if (st->invalid_count) {
		job->kind = J_INVALIDATE;
		job->id = st->invalids[--st->invalid_count];
		return;
	}
	if (st->keep == CLAIR_KEEP_AUTO)
		return;
	if (stage_drop_due(st) && clair_now_ns() >= st->drop_not_before) {
		pick_drops(st, job);
		if (job->kind != J_NONE)
			return;
	}
	if (st->spills) {
		job->kind = J_SPILL;
		job->flight = st->spills;
		st->spills = st->spills->next_spill;
		return;
	}
	if (st->active >= most_loads(st))
		return;
	pick_piece(st, job, st->inflight_bytes < INFLIGHT_BYTES);
	while (job->kind == J_NONE && st->inflight_bytes < INFLIGHT_BYTES &&
	       (lane = nearest(st, job, &id)) && pick_sample(st, job, lane, id))
		;
}

/* --- doing ------------------------------------------------------------------------- */

/* Makes the epoch that a lane reads after this one. */
static void run_epoch(struct clair_stage *st, size_t stream, size_t index)
{
	struct clair_epoch *e = NULL;

	autolock(&st->order);
	struct stream *s = &st->streams[stream];
	if (index >= s->lane_count)
		return; /* another stream's by now */
	struct lane *lane = &s->lanes[index];
	pthread_mutex_lock(&st->lock);
	uint64_t epoch = lane->next_epoch;
	pthread_mutex_unlock(&st->lock);
	size_t ranks;
	const uint32_t *rank = clair_stream_ranks(s->stream, &ranks);
	int r = epoch == UINT64_MAX ? -ENOENT :
				      clair_stream_epoch(s->stream, epoch, rank[index], &e);
	autolock(&st->lock);
	lane->making = false;
	lane->wants_then = false;
	if (r == 0 && lane->now && !lane->then) {
		lane->then = e;
	} else {
		clair_epoch_put(e);
		lane->ended = lane->ended || r < 0;
	}
	stage_kick(st);
}

static void run(struct clair_stage *st, struct job *job)
{
	switch (job->kind) {
	case J_FLIGHT:
		stage_run_flight(st, job->flight);
		break;
	case J_PIECE:
		stage_run_piece(st, job->large, job->flight);
		break;
	case J_DROP:
		stage_run_drop(st, job);
		break;
	case J_EPOCH:
		run_epoch(st, job->stream, job->lane);
		break;
	case J_SPILL:
		flight_spill(st, job->flight);
		pthread_mutex_lock(&st->lock);
		flight_put(st, job->flight);
		pthread_mutex_unlock(&st->lock);
		break;
	case J_INVALIDATE:
		st->config.kernel->invalidate(st->config.kernel->self, job->id);
		break;
	case J_NONE:
		break;
	}
}

/* Nothing to do now: until kicked, or until busy samples may be tried again. lock */
static void wait_work(struct clair_stage *st)
{
	bool timed = !st->gone && st->keep != CLAIR_KEEP_AUTO && stage_drop_due(st) &&
		     !st->active;

	st->kicked = false;
	if (!st->active)
		pthread_cond_broadcast(&st->quiet);
	st->idle++;
	if (timed) {
		struct timespec t = clair_deadline(st->drop_not_before - clair_now_ns());
		pthread_cond_timedwait(&st->work, &st->lock, &t);
	} else {
		pthread_cond_wait(&st->work, &st->lock);
	}
	st->idle--;
}

static bool must_decide(const struct clair_stage *st)
{
	if (st->keep != CLAIR_KEEP_AUTO || st->deciding || st->gone)
		return false;
	for (size_t i = 0; i < st->stream_count; i++)
		if (st->streams[i].known)
			return true;
	return false;
}

/* Whether JOB may wait for a device, so that another worker is of use meanwhile. What
 * comes from memory is bound by the pushes, which are one at a time. */
static bool waits(const struct clair_stage *st, const struct job *job)
{
	if (job->kind == J_DROP || job->kind == J_INVALIDATE)
		return false;
	return job->kind != J_FLIGHT ||
	       !(job->flight->data || (st->samples[job->flight->id].flags & F_ARENA));
}

void *stage_worker(void *arg)
{
	struct clair_stage *st = arg;
	struct job job;

	pthread_mutex_lock(&st->lock);
	while (!st->stopping) {
		if (must_decide(st)) {
			st->deciding = true;
			st->active++;
			pthread_mutex_unlock(&st->lock);
			stage_decide_keep(st);
			pthread_mutex_lock(&st->lock);
			st->active--;
			continue;
		}
		pick(st, &job);
		if (job.kind == J_NONE) {
			wait_work(st);
			continue;
		}
		st->active++;
		if (st->active < most_loads(st) && waits(st, &job))
			wake_one(st);
		pthread_mutex_unlock(&st->lock);
		run(st, &job);
		pthread_mutex_lock(&st->lock);
		st->active--;
	}
	st->alive--;
	pthread_cond_broadcast(&st->quiet);
	pthread_mutex_unlock(&st->lock);
	return NULL;
}
