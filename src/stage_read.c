/* SPDX-License-Identifier: BSD-3-Clause */
/* READs of readers that reached the daemon. The thread that serves the request does the
 * work itself. */
#include "stage_internal.h"

#include <errno.h>

/* What clair_bytes.hold points to. */
struct hold {
	struct flight *flight;       /* or */
	struct clair_buffer *buffer; /* of the READ's own */
};

static int give(struct flight *f, struct clair_buffer *buffer, const void *data, size_t size,
		struct clair_bytes *out)
{
	struct hold *hold = malloc(sizeof *hold);

	if (!hold)
		return -ENOMEM;
	hold->flight = f;
	hold->buffer = buffer;
	out->data = data;
	out->size = size;
	out->hold = hold;
	return 0;
}

/* Opens ID for reading through: *SHARED is given back, or *OWN is closed. */
static int take_through(struct clair_stage *st, uint32_t id, bool changed,
			struct opened **shared, struct clair_source_file **own)
{
	int r = 0;

	*shared = NULL;
	*own = NULL;
	if (!changed) {
		r = sample_size(st, id) > PIECE ?
			    stage_file_get(st, id, shared) :
			    clair_source_open(st->config.source, id, own);
		if (r != -ESTALE)
			return r;
		clair_stage_changed(st, id);
	}
	return clair_source_open_changed(st->config.source, id, own);
}

/* Just this range, from the source as it is. */
static int read_through(struct clair_stage *st, uint32_t id, uint64_t offset, size_t size,
			bool changed, struct clair_bytes *out)
{
	struct clair_source_file *own;
	struct opened *shared;
	uint64_t from = offset & ~4095ull;
	size_t skip = (size_t)(offset - from);
	size_t ask = (skip + size + 4095) & ~(size_t)4095;
	struct clair_buffer *buffer = clair_buffer_get(st->pool, ask);

	if (!buffer)
		return -ENOMEM;
	int r = take_through(st, id, changed, &shared, &own);
	ssize_t n = r;
	if (r == 0)
		n = clair_source_read(shared ? stage_file_of(shared) : own, buffer->data, ask,
				      from);
	stage_file_put(st, shared);
	clair_source_close(own);
	if (n >= 0) {
		size_t got = (size_t)n > skip ? (size_t)n - skip : 0;
		r = give(NULL, buffer, buffer->data + skip, got < size ? got : size, out);
	} else {
		r = (int)n;
	}
	if (r < 0)
		clair_buffer_put(st->pool, buffer);
	return r;
}

/* A large file's range: from a directory when one has it, else the source. */
static int read_range(struct clair_stage *st, uint32_t id, uint64_t offset, size_t size,
		      struct clair_bytes *out)
{
	struct sample x;
	uint32_t at = 0;

	pthread_mutex_lock(&st->lock);
	x = st->samples[id];
	if (x.flags & F_ARENA)
		at = st->arena_at[id];
	pthread_mutex_unlock(&st->lock);
	if (x.flags & F_ARENA)
		return give(NULL, NULL, clair_arena_at(st->arena, at) + offset, size, out);
	if (x.disk && stage_still_the_same(st, id) == 0) {
		struct clair_buffer *buffer = clair_buffer_get(st->pool, size);
		int r = buffer ? 0 : -ENOMEM;
		if (r == 0)
			r = clair_disk_pread(st->config.disks[x.disk - 1], id, buffer->data,
					     size, offset);
		if (r >= 0 && give(NULL, buffer, buffer->data, size, out) == 0) {
			clair_count(&st->config.stats->cache.bytes, size);
			return 0;
		}
		clair_buffer_put(st->pool, buffer);
	}
	return read_through(st, id, offset, size, x.flags & F_CHANGED, out);
}

/* The bytes of F, which the caller holds. lock */
static int hand_out(struct clair_stage *st, struct flight *f, uint64_t offset, size_t size,
		    struct clair_bytes *out)
{
	uint64_t skip = offset - (uint64_t)f->piece * PIECE;

	int r = give(f, NULL, f->data + skip, size, out);
	if (r < 0) {
		flight_put(st, f);
		return r;
	}
	f->handed += size;
	if (f->held && f->handed >= f->size)
		flight_unhold(st, f);
	return 0;
}

/* A READ of what should be in the page cache: the kernel lost it. lock */
static bool account_lost(struct clair_stage *st, uint32_t id, size_t size)
{
	struct sample *x = &st->samples[id];

	if (x->state != S_KEPT && x->state != S_STAGED)
		return false;
	if (x->account == A_OPENED || x->account == A_IDLE) {
		clair_count(&st->config.stats->lost_samples, 1);
		if (x->account == A_OPENED)
			x->account = A_SETTLED;
	}
	clair_count(&st->config.stats->lost_pages, (size + 4095) / 4096);
	return true;
}

/* Whether what a READ fetches belongs to a stream that is followed. lock */
static bool followed(const struct clair_stage *st, uint32_t id)
{
	const struct sample *x = &st->samples[id];

	return x->stream && st->streams[x->stream - 1].known &&
	       st->streams[x->stream - 1].trusted && !st->gone;
}

/* Decides what becomes of a sample that a READ has fetched. lock; true: the caller copies
 * it into the arena (f->arena_at). */
static bool keep_demanded(struct clair_stage *st, struct flight *f)
{
	struct sample *x = &st->samples[f->id];
	bool follow = followed(st, f->id);

	/* What this node is the home of it keeps for the others, whatever is known. */
	if ((!follow && (!st->peers || st->gone)) || x->state != S_ABSENT ||
	    (x->flags & (F_CHANGED | F_LOADED)))
		return false;
	if (stage_may_keep(st, f->id)) {
		if (st->keep == CLAIR_KEEP_KERNEL) {
			stage_homed(st, f->id);
			stage_take(&st->ram, f->size);
			x->state = S_KEPT;
			x->flags &= (uint8_t)~F_USED;
			return false;
		}
		f->arena_at = stage_arena_room(st, f->id);
	}
	if (f->arena_at == CLAIR_ARENA_NONE && !stage_has_home(st, f->id) &&
	    st->config.disk_count && (!st->peers || clair_peers_keeps(st->peers, f->id))) {
		f->holders++;
		f->next_spill = st->spills;
		st->spills = f;
		stage_kick(st);
	}
	if (!follow)
		return f->arena_at != CLAIR_ARENA_NONE;
	x->flags |= F_LOADED;
	if (x->account == A_SETTLED) /* its open was seen before */
		stage_adopt(st, f->id);
	return f->arena_at != CLAIR_ARENA_NONE;
}

/* What a READ gets of F comes into the page cache: it is kept or counted. lock, let go of
 * for the copy into the arena */
static void keep_bytes(struct clair_stage *st, struct flight *f)
{
	if (!keep_demanded(st, f))
		return;
	pthread_mutex_unlock(&st->lock);
	flight_store(st, f);
	pthread_mutex_lock(&st->lock);
	if (f->arena_at == CLAIR_ARENA_NONE)
		return;
	/* It changed meanwhile. */
	stage_forget_arena(st, f->id, f->arena_at);
	f->arena_at = CLAIR_ARENA_NONE;
}

/* A READ came first: fetches the whole file. F is listed and held by the caller. lock */
static int demand(struct clair_stage *st, struct flight *f)
{
	pthread_mutex_unlock(&st->lock);
	int r = flight_load(st, f);
	if (r == 0 && st->peers && sample_size(st, f->id) > PIECE)
		stage_keep_served(st, f);
	pthread_mutex_lock(&st->lock);
	flight_finish(st, f, r);
	if (r == -ESTALE)
		stage_mark_changed(st, f->id);
	if (r == 0 && (st->samples[f->id].flags & F_CHANGED)) {
		flight_unlist(st, f);
		r = -ESTALE;
	}
	if (r == 0)
		flight_hold(st, f);
	return r;
}

/* Adds the time from FROM on that no other READ of F has counted. lock */
static void count_stall(struct clair_stage *st, struct flight *f, uint32_t id, int64_t from)
{
	int64_t now = clair_now_ns();

	if (f && f->stalled_to > from)
		from = f->stalled_to;
	if (f)
		f->stalled_to = now;
	if (now > from)
		stage_account_stall(st, id, now - from);
}

/* A piece of a large file that a READ is the first to want: it is staged, or a copy of it is
 * read whole, which is when its hash is checked. NULL: read just the range. lock */
static struct flight *begin_piece(struct clair_stage *st, uint32_t id, uint64_t offset,
				  struct large **large)
{
	const struct sample *x = &st->samples[id];
	uint32_t piece = (uint32_t)(offset / PIECE);
	struct large *l = NULL;

	*large = NULL;
	if (st->inflight_bytes >= 2 * INFLIGHT_BYTES)
		return NULL;
	if (x->state == S_FETCHING)
		l = stage_large_of(st, id);
	else if (!stage_has_home(st, id) && followed(st, id))
		l = stage_demand_large(st, id);
	if (l) {
		*large = l;
		return stage_claim_piece(st, l, piece);
	}
	/* Of a directory whoever reads in order gets pieces, others small parts. */
	if ((x->flags & F_ARENA) || (x->disk && offset % PIECE == 0))
		return flight_new(st, id, piece);
	/* Of the job's nodes one keeps it: asked piece by piece, or it is this one. */
	if (st->peers && clair_peers_home(st->peers, id) != CLAIR_NO_NODE)
		return flight_new(st, id, piece);
	return NULL;
}

/* Loads F for L, whose workers do the rest. lock */
static int demand_piece(struct clair_stage *st, struct large *l, struct flight *f)
{
	pthread_mutex_unlock(&st->lock);
	int r = flight_load(st, f);
	pthread_mutex_lock(&st->lock);
	flight_finish(st, f, r);
	f->holders++;
	f->next_spill = l->loaded;
	l->loaded = f;
	stage_kick(st);
	return r;
}

/* From a flight, under way or begun here. 1: not that way, read the range. lock */
static int read_flight(struct clair_stage *st, uint32_t id, uint64_t offset, size_t size,
		       int64_t begun, struct clair_bytes *out)
{
	bool small = sample_size(st, id) <= PIECE;
	uint32_t piece = (uint32_t)(offset / PIECE);
	struct flight *f = flight_find(st, id, piece);
	int r = 0;

	bool late = f ? !f->demand : st->samples[id].state == S_FETCHING;
	if (!f || !f->demand || !f->handed) {
		if (!account_lost(st, id, size))
			stage_account_read(st, id, late);
	}
	struct large *l = NULL;
	bool begun_here = !f;
	if (!small && (offset + size - 1) / PIECE != piece)
		return 1;
	if (!f)
		f = small ? flight_new(st, id, piece) : begin_piece(st, id, offset, &l);
	if (!f)
		return small ? -ENOMEM : 1;
	if (begun_here) {
		f->demand = true;
		r = l ? demand_piece(st, l, f) : demand(st, f);
	} else {
		f->holders++;
		r = f->loaded ? f->error : flight_await(st, f);
	}
	count_stall(st, f, id, begun);
	if (r == 0) {
		if (small)
			keep_bytes(st, f);
		return hand_out(st, f, offset, size, out);
	}
	flight_put(st, f);
	/* Another thread's failure, a change, or a load that hangs: the source decides. */
	return 1;
}

int clair_stage_read(struct clair_stage *st, uint32_t id, uint64_t offset, size_t size,
		     struct clair_bytes *out)
{
	const struct clair_entry *e = clair_catalog_entry(st->catalog, id);
	int64_t begun = clair_now_ns();
	int r = 1;

	*out = (struct clair_bytes){ 0 };
	pthread_mutex_lock(&st->lock);
	bool changed = st->samples[id].flags & F_CHANGED;
	if (!changed && offset >= e->size)
		size = 0;
	else if (!changed && size > e->size - offset)
		size = (size_t)(e->size - offset);
	if (size && !changed)
		r = read_flight(st, id, offset, size, begun, out);
	changed = st->samples[id].flags & F_CHANGED;
	pthread_mutex_unlock(&st->lock);
	if (!size)
		return 0;
	if (r == 1) {
		begun = clair_now_ns();
		r = changed ? read_through(st, id, offset, size, true, out) :
			      read_range(st, id, offset, size, out);
		autolock(&st->lock);
		count_stall(st, NULL, id, begun);
	}
	if (r < 0)
		clair_count(&st->config.stats->error_reader, 1);
	return r;
}

void clair_stage_release(struct clair_stage *st, struct clair_bytes *bytes)
{
	struct hold *hold = bytes->hold;

	if (!hold)
		return;
	if (hold->flight) {
		autolock(&st->lock);
		flight_put(st, hold->flight);
	}
	clair_buffer_put(st->pool, hold->buffer);
	free(hold);
	*bytes = (struct clair_bytes){ 0 };
}
