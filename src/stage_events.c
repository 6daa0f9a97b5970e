/* SPDX-License-Identifier: BSD-3-Clause */
/* What the watch and the readers' requests tell, and the accounting of both. */
#include "stage_internal.h"

#include <errno.h>

#define SLOTS 32u /* of epoch records that a sample's last open can name */

static struct clair_epoch_stats *epoch_record(struct stream *s, uint64_t epoch,
					      uint64_t pass)
{
	for (size_t i = s->epoch_count; i-- > 0 && i + 8 > s->epoch_count;)
		if (s->epochs[i].epoch == epoch && s->passes[i] == pass)
			return &s->epochs[i];
	if (s->epoch_count == s->epoch_room) {
		size_t room = s->epoch_room ? 2 * s->epoch_room : 16;
		void *epochs = realloc(s->epochs, sizeof *s->epochs * room);
		if (epochs)
			s->epochs = epochs;
		void *passes = realloc(s->passes, sizeof *s->passes * room);
		if (passes)
			s->passes = passes;
		if (!epochs || !passes)
			return NULL;
		s->epoch_room = room;
	}
	s->passes[s->epoch_count] = pass;
	s->epochs[s->epoch_count] = (struct clair_epoch_stats){ .epoch = epoch };
	return &s->epochs[s->epoch_count++];
}

static struct clair_epoch_stats *record_of(struct clair_stage *st, const struct sample *x)
{
	struct stream *s = &st->streams[x->stream - 1];

	for (size_t i = s->epoch_count; i-- > 0 && i + SLOTS > s->epoch_count;)
		if (i % SLOTS == x->slot)
			return &s->epochs[i];
	return NULL;
}

void stage_account_read(struct clair_stage *st, uint32_t id, bool late)
{
	struct sample *x = &st->samples[id];

	if (!x->stream)
		return;
	if (x->account == A_IDLE) {
		x->account = late ? A_EARLY_LATE : A_EARLY_MISSED;
	} else if (x->account == A_OPENED) {
		struct clair_epoch_stats *e = record_of(st, x);
		if (e && e->staged) {
			e->staged--;
			if (late)
				e->late++;
			else
				e->missed++;
		}
		x->account = A_SETTLED;
		if (x->flags & F_LOADED)
			stage_adopt(st, id);
	}
}

void stage_account_stall(struct clair_stage *st, uint32_t id, int64_t ns)
{
	const struct sample *x = &st->samples[id];
	struct stream *s = x->stream ? &st->streams[x->stream - 1] : NULL;

	if (s && s->epoch_count)
		s->epochs[s->epoch_count - 1].stall_ns += ns;
}

static void account_open(struct clair_stage *st, uint32_t id,
			 const struct clair_open_result *r, uint64_t pass, int64_t now)
{
	struct sample *x = &st->samples[id];
	struct stream *s = &st->streams[x->stream - 1];

	if (r->use == CLAIR_USE_REPEAT)
		return;
	struct clair_epoch_stats *e;
	if (r->use == CLAIR_USE_UNPREDICTED && s->epoch_count)
		e = &s->epochs[s->epoch_count - 1];
	else
		e = epoch_record(s, r->epoch, pass);
	if (!e)
		return;
	if (!e->opens) {
		e->begin_ns = now;
		e->pfs_at = e == s->epochs ? 0 : atomic_load(&st->config.stats->pfs.bytes);
	}
	e->end_ns = now;
	e->opens++;
	e->bytes += sample_size(st, id);
	x->slot = (unsigned)(e - s->epochs) % SLOTS;
	if (r->use == CLAIR_USE_UNPREDICTED) {
		e->unpredicted++;
		x->account = A_SETTLED;
		x->flags &= (uint8_t)~F_LOADED;
		return;
	}
	if (x->account == A_EARLY_LATE || x->account == A_EARLY_MISSED) {
		if (x->account == A_EARLY_LATE)
			e->late++;
		else
			e->missed++;
		x->account = A_SETTLED;
	} else {
		e->staged++;
		x->account = A_OPENED;
	}
	if (x->flags & F_LOADED)
		stage_adopt(st, id);
	if (x->state == S_KEPT) {
		if (x->flags & F_USED) {
			clair_count(&st->config.stats->ram.samples, 1);
			clair_count(&st->config.stats->ram.bytes, sample_size(st, id));
		}
		x->flags |= F_USED;
	}
}

/* A lane's order when nothing is known of what comes after. */
static uint64_t next_epoch(const struct stream *s, uint32_t lane)
{
	uint64_t next = clair_tracker_next_epoch(s->tracker, lane);

	return next >= clair_stream_end_epoch(s->stream) ? UINT64_MAX : next;
}

/* Brings lane number LANE to where the tracker is. order held, lock not. */
static void follow(struct clair_stage *st, struct stream *s, uint32_t lane)
{
	struct clair_position pos;
	struct clair_epoch *fresh = NULL;
	size_t ranks;
	const uint32_t *rank = clair_stream_ranks(s->stream, &ranks);

	clair_tracker_position(s->tracker, lane, &pos);
	/* The lanes' epochs change only under the order lock. */
	if (!lane_has_epoch(&s->lanes[lane], &pos) &&
	    clair_stream_epoch(s->stream, pos.epoch, rank[lane], &fresh) < 0)
		return;
	uint64_t next = next_epoch(s, lane);
	autolock(&st->lock);
	bool had = s->lanes[lane].then != NULL || s->lanes[lane].ended;
	lane_move(st, &s->lanes[lane], &pos, next, fresh);
	if (fresh) /* some of what lies ahead of it was opened before */
		for (uint32_t i = pos.low; i < pos.high; i++)
			if (clair_tracker_opened(s->tracker, lane, i))
				lane_opened(st, &s->lanes[lane], pos.epoch, i);
	bool has = s->lanes[lane].then != NULL || s->lanes[lane].ended;
	if (fresh) /* needs what is staged already before it is dropped */
		lane_next(st, s, &s->lanes[lane]);
	if (fresh || had != has)
		stage_kick(st);
}

/* Trust was lost: nothing is staged ahead; what is, is left to the kernel. lock */
static void let_go(struct clair_stage *st, struct stream *s)
{
	for (size_t l = 0; l < s->lane_count; l++) {
		struct lane *lane = &s->lanes[l];
		struct clair_epoch *now = lane->now, *then = lane->then;
		uint32_t ids = lane->ahead ? now->count : lane->head;

		if (!now)
			continue;
		uint32_t from = lane->tail, ahead = lane->ahead ? lane->head : 0;
		clair_epoch_get(now);
		if (then)
			clair_epoch_get(then);
		lane_clear(st, lane);
		for (uint32_t i = from; i < ids; i++)
			if (st->samples[now->ids[i]].state == S_STAGED &&
			    !st->samples[now->ids[i]].needs)
				stage_uncount(st, now->ids[i]);
		for (uint32_t i = 0; i < ahead; i++)
			if (st->samples[then->ids[i]].state == S_STAGED &&
			    !st->samples[then->ids[i]].needs)
				stage_uncount(st, then->ids[i]);
		clair_epoch_put(now);
		clair_epoch_put(then);
	}
	stage_kick(st);
}

void clair_stage_opened(struct clair_stage *st, uint32_t id, int64_t now)
{
	struct clair_open_result r = { 0 };
	struct clair_position pos = { 0 };

	autolock(&st->order);
	if (id >= st->count || !st->samples[id].stream)
		return; /* streams change only under the order lock */
	struct stream *s = &st->streams[st->samples[id].stream - 1];
	clair_tracker_open(s->tracker, id, now, &r);
	if (s->known)
		clair_tracker_position(s->tracker, r.lane, &pos);
	bool trusted = s->known && clair_tracker_trusted(s->tracker);

	pthread_mutex_lock(&st->lock);
	if (r.use == CLAIR_USE_PREDICTED && r.epoch != pos.epoch)
		pos.pass = 0;
	account_open(st, id, &r, pos.pass, now);
	bool lost = s->trusted && !trusted && s->known;
	bool found = !s->trusted && trusted;
	s->trusted = trusted;
	if (lost)
		let_go(st, s);
	pthread_mutex_unlock(&st->lock);

	if (trusted) {
		if (r.moved || found) {
			for (uint32_t l = 0; l < s->lane_count; l++)
				follow(st, s, l);
		} else if (r.use == CLAIR_USE_PREDICTED) {
			follow(st, s, r.lane);
		}
	}
	autolock(&st->lock);
	if (trusted && r.use == CLAIR_USE_PREDICTED)
		lane_opened(st, &s->lanes[r.lane], r.epoch, r.index);
	stage_shed(st);
	if (stage_drop_due(st) && !st->kicked)
		stage_kick(st);
}

void clair_stage_overflow(struct clair_stage *st)
{
	clair_count(&st->config.stats->overflows, 1);
}

void clair_stage_forgot(struct clair_stage *st, uint32_t id)
{
	if (id >= st->count)
		return;
	autolock(&st->lock);
	struct sample *x = &st->samples[id];
	x->flags &= (uint8_t)~F_LOADED;
	if (x->state != S_KEPT && x->state != S_STAGED)
		return;
	clair_count(&st->config.stats->lost_samples, 1);
	clair_count(&st->config.stats->lost_pages, (sample_size(st, id) + 4095) / 4096);
	stage_uncount(st, id);
}

void clair_stage_changed(struct clair_stage *st, uint32_t id)
{
	if (id >= st->count)
		return;
	autolock(&st->lock);
	if (st->samples[id].flags & F_CHANGED) /* once more: what was read since is old, too */
		stage_queue_invalid(st, id);
	stage_mark_changed(st, id);
	stage_kick(st);
}

void clair_stage_spoiled(struct clair_stage *st, uint32_t id)
{
	if (id >= st->count)
		return;
	autolock(&st->lock);
	struct sample *x = &st->samples[id];
	x->flags &= (uint8_t)~F_LOADED;
	if (x->state == S_KEPT || x->state == S_STAGED)
		stage_uncount(st, id);
	stage_queue_invalid(st, id);
}

bool clair_stage_is_changed(struct clair_stage *st, uint32_t id)
{
	if (id >= st->count)
		return false;
	autolock(&st->lock);
	return st->samples[id].flags & F_CHANGED;
}

int clair_stage_set_epoch(struct clair_stage *st, uint32_t folder, uint64_t epoch)
{
	autolock(&st->order);
	for (size_t i = 0; i < st->stream_count; i++) {
		struct stream *s = &st->streams[i];

		if (s->folder != folder)
			continue;
		int r = clair_tracker_set_epoch(s->tracker, epoch);
		if (r < 0)
			return r;
		for (uint32_t l = 0; l < s->lane_count; l++)
			follow(st, s, l);
		return 0;
	}
	return -ENOENT;
}

/* The lanes must move with each open: entries that were opened are not staged again. */
int clair_stage_replay(struct clair_stage *st, uint32_t folder, const uint32_t *ids,
		       size_t count)
{
	struct clair_open_result r;

	autolock(&st->order);
	for (size_t i = 0; i < st->stream_count; i++) {
		struct stream *s = &st->streams[i];

		if (s->folder != folder || !s->known)
			continue;
		for (size_t k = 0; k < count; k++) {
			clair_tracker_open(s->tracker, ids[k], 0, &r);
			if (r.use != CLAIR_USE_PREDICTED)
				continue;
			pthread_mutex_lock(&st->lock);
			lane_opened(st, &s->lanes[r.lane], r.epoch, r.index);
			pthread_mutex_unlock(&st->lock);
		}
		for (uint32_t l = 0; l < s->lane_count; l++)
			follow(st, s, l);
		return 0;
	}
	return -ENOENT;
}

bool clair_stage_trusted(struct clair_stage *st, uint32_t folder)
{
	autolock(&st->order);
	for (size_t i = 0; i < st->stream_count; i++)
		if (st->streams[i].folder == folder)
			return st->streams[i].known && st->streams[i].trusted;
	return false;
}
