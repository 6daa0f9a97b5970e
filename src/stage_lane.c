/* SPDX-License-Identifier: BSD-3-Clause */
/* Lanes: how far each local rank is staged and how far it has read. Every entry between
 * the tail and the head that was not opened yet holds one need of its sample. The stage's lock is held in all of
 * this file; an epoch's array is replaced only under the order lock too. */
#include "stage_internal.h"

#include <assert.h>

#define MOST(a, b) ((a) < (b) ? (a) : (b))

/* Dropping lags behind, so that a second open soon after the first finds its pages, and
 * goes in batches. */
static uint64_t drop_lag(const struct clair_stage *st)
{
	return MOST(st->staging.limit / 8, 8ull << 20);
}

static uint64_t staged_ahead(const struct clair_stage *st)
{
	return st->staging.real > st->drop_bytes ? st->staging.real - st->drop_bytes : 0;
}

bool stage_drop_due(const struct clair_stage *st)
{
	if (!st->drop_count)
		return false;
	if (st->drop_bytes > drop_lag(st) + MOST(st->staging.limit / 16, 2ull << 20))
		return true;
	return st->starved && staged_ahead(st) < st->staging.limit / 2;
}

bool stage_drop_more(const struct clair_stage *st)
{
	return st->drop_count && (st->drop_bytes > drop_lag(st) || stage_drop_due(st));
}

static bool grow_drops(struct clair_stage *st)
{
	size_t room = st->drop_room ? 2 * st->drop_room : 256;
	struct drop_entry *drops = malloc(sizeof *drops * room);

	if (!drops)
		return false;
	for (size_t i = 0; i < st->drop_count; i++)
		drops[i] = st->drops[(st->drop_first + i) % st->drop_room];
	free(st->drops);
	st->drops = drops;
	st->drop_first = 0;
	st->drop_room = room;
	return true;
}

void stage_queue_drop(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];

	if (x->state != S_STAGED || x->needs || (x->flags & F_QUEUED))
		return;
	if (st->drop_count == st->drop_room && !grow_drops(st)) {
		stage_uncount(st, id); /* the kernel's from now on */
		return;
	}
	x->flags |= F_QUEUED;
	st->drops[(st->drop_first + st->drop_count++) % st->drop_room] =
		(struct drop_entry){ .id = id, .since = clair_now_ns() };
	st->drop_bytes += stage_real(sample_size(st, id));
	if (!st->kicked && stage_drop_due(st))
		stage_kick(st);
}

void stage_adopt(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];

	x->flags &= (uint8_t)~F_LOADED;
	if (x->state != S_ABSENT || (x->flags & F_CHANGED))
		return;
	x->state = S_STAGED;
	stage_take(&st->staging, sample_size(st, id));
	stage_queue_drop(st, id);
}

static void need(struct clair_stage *st, uint32_t id)
{
	stage_unqueue(st, id);
	if (st->samples[id].needs < NEEDS_MAX)
		st->samples[id].needs++;
}

static void unneed(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];

	assert(x->needs > 0);
	if (x->needs == NEEDS_MAX)
		return; /* not countable any more */
	if (--x->needs == 0)
		stage_queue_drop(st, id);
}

static bool is_done(const struct lane *lane, uint32_t i)
{
	return lane->done && (lane->done[i / 64] >> i % 64 & 1);
}

void lane_begin(struct lane *lane, struct clair_epoch *epoch, uint32_t low)
{
	lane->now = epoch;
	free(lane->done);
	lane->done = calloc(epoch->count / 64 + 1ul, sizeof *lane->done);
	lane->head = lane->tail = MOST(low, epoch->count);
}

/* Lets go of what the head has passed in the epoch after this one. */
static void clear_then(struct clair_stage *st, struct lane *lane)
{
	if (lane->ahead) {
		for (uint32_t i = 0; i < lane->head; i++)
			unneed(st, lane->then->ids[i]);
		lane->ahead = false;
		lane->head = lane->now->count;
	}
	clair_epoch_put(take_ptr(lane->then));
	lane->wants_then = false;
}

void lane_clear(struct clair_stage *st, struct lane *lane)
{
	if (!lane->now)
		return;
	clear_then(st, lane);
	for (uint32_t i = lane->tail; i < lane->head; i++)
		if (!is_done(lane, i))
			unneed(st, lane->now->ids[i]);
	clair_epoch_put(take_ptr(lane->now));
	lane->head = lane->tail = 0;
}

static void advance_tail(struct clair_stage *st, struct lane *lane, uint32_t low)
{
	uint32_t taken = lane->ahead ? lane->now->count : lane->head;

	low = MOST(low, lane->now->count);
	for (; lane->tail < low; lane->tail++) {
		uint32_t id = lane->now->ids[lane->tail];

		st->samples[id].flags &= (uint8_t)~F_LOADED;
		if (is_done(lane, lane->tail))
			continue;
		if (lane->tail < taken)
			unneed(st, id);
		else
			stage_queue_drop(st, id);
	}
	if (!lane->ahead && lane->head < lane->tail) {
		lane->head = lane->tail;
		lane->outrun = true;
	}
}

/* The epoch after is the one that is read now. */
static void shift(struct clair_stage *st, struct lane *lane)
{
	bool ahead = lane->ahead;
	uint32_t head = ahead ? lane->head : 0;

	advance_tail(st, lane, lane->now->count);
	clair_epoch_put(lane->now);
	lane_begin(lane, take_ptr(lane->then), 0);
	lane->ahead = false;
	lane->head = head;
	lane->wants_then = false;
}

bool lane_has_epoch(const struct lane *lane, const struct clair_position *pos)
{
	if (lane->now && lane->now->epoch == pos->epoch && lane->pass == pos->pass)
		return true;
	return lane->now && lane->then && lane->then->epoch == pos->epoch;
}

void lane_move(struct clair_stage *st, struct lane *lane, const struct clair_position *pos,
	       uint64_t next_epoch, struct clair_epoch *fresh)
{
	bool same = lane->now && lane->now->epoch == pos->epoch && lane->pass == pos->pass;

	if (same && pos->low < lane->tail && !fresh) {
		/* Back in the same epoch: begin again from there. */
		fresh = clair_epoch_get(lane->now);
	}
	if (!fresh && !same && lane->now && lane->then && lane->then->epoch == pos->epoch)
		shift(st, lane);
	if (fresh) {
		lane_clear(st, lane);
		lane_begin(lane, fresh, pos->low);
	}
	lane->pass = pos->pass;
	if (!lane->now)
		return;
	advance_tail(st, lane, pos->low);
	lane->next_epoch = next_epoch;
	lane->ended = next_epoch == UINT64_MAX;
	if (lane->then && lane->then->epoch != next_epoch)
		clear_then(st, lane);
}

void lane_opened(struct clair_stage *st, struct lane *lane, uint64_t epoch,
		 uint32_t index)
{
	if (!lane->now || lane->now->epoch != epoch || index >= lane->now->count ||
	    !lane->done || is_done(lane, index))
		return;
	lane->done[index / 64] |= 1ull << index % 64;
	if (index < lane->tail)
		return;
	st->samples[lane->now->ids[index]].flags &= (uint8_t)~F_LOADED;
	if (lane->ahead || index < lane->head)
		unneed(st, lane->now->ids[index]);
}

void lane_advance(struct clair_stage *st, struct lane *lane)
{
	struct clair_epoch *e = lane->ahead ? lane->then : lane->now;

	need(st, e->ids[lane->head++]);
}

/* Whether ID, which is staged and not needed, may be kept for its next use. */
static bool fits_ahead(const struct clair_stage *st, uint32_t id)
{
	return staged_ahead(st) + stage_real(sample_size(st, id)) <=
	       stage_real_limit(&st->staging);
}

/* The head of LANE goes back by one entry. False: it cannot. */
static bool step_back(struct clair_stage *st, struct lane *lane)
{
	if (!lane->now)
		return false;
	if (lane->ahead && lane->head == 0) {
		lane->ahead = false;
		lane->head = lane->now->count;
	}
	if (!lane->ahead && lane->head <= lane->tail)
		return false;
	lane->head--;
	if (lane->ahead)
		unneed(st, lane->then->ids[lane->head]);
	else if (!is_done(lane, lane->head))
		unneed(st, lane->now->ids[lane->head]);
	return true;
}

void stage_shed(struct clair_stage *st)
{
	while (staged_ahead(st) > stage_real_limit(&st->staging)) {
		struct lane *far = NULL;

		for (size_t i = 0; i < st->stream_count; i++) {
			struct stream *s = &st->streams[i];
			for (size_t l = 0; l < s->lane_count; l++)
				if (s->lanes[l].now &&
				    (!far || lane_distance(&s->lanes[l]) > lane_distance(far)))
					far = &s->lanes[l];
		}
		if (!far || !step_back(st, far))
			return;
	}
}

/* Whether workers have nothing to do for ID whatever comes. */
static bool passes(const struct clair_stage *st, uint32_t id)
{
	const struct sample *x = &st->samples[id];
	const struct clair_entry *e = clair_catalog_entry(st->catalog, id);

	if (x->state != S_ABSENT || (x->flags & (F_CHANGED | F_LOADED)))
		return true;
	if (e->kind != CLAIR_FILE || e->size == 0)
		return true;
	return stage_too_large(&st->staging, e->size) && !stage_may_keep(st, id);
}

uint32_t lane_next(struct clair_stage *st, struct stream *s, struct lane *lane)
{
	if (!s->known || !s->trusted)
		return CLAIR_NO_ID;
	while (lane->now) {
		struct clair_epoch *e = lane->ahead ? lane->then : lane->now;

		if (lane->head < e->count) {
			uint32_t id = e->ids[lane->head];
			if (!lane->ahead && is_done(lane, lane->head)) {
				lane->head++;
				lane->outrun = true;
				continue;
			}
			if (st->samples[id].state == S_DROPPING)
				return CLAIR_NO_ID; /* soon; who drops it kicks */
			if (!passes(st, id))
				return id;
			if (st->samples[id].state == S_STAGED && !st->samples[id].needs &&
			    !fits_ahead(st, id)) {
				st->starved = true;
				return CLAIR_NO_ID;
			}
			lane_advance(st, lane);
		} else if (lane->ahead || lane->ended) {
			break;
		} else if (lane->then) {
			lane->ahead = true;
			lane->head = 0;
		} else {
			lane->wants_then = true;
			break;
		}
	}
	return CLAIR_NO_ID;
}

uint64_t lane_distance(const struct lane *lane)
{
	if (lane->ahead)
		return (uint64_t)lane->now->count - lane->tail + lane->head;
	return lane->head - lane->tail;
}
