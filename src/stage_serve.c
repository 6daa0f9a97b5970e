/* SPDX-License-Identifier: BSD-3-Clause */
/* What other nodes of the job ask of this one. What memory has is answered at once; the rest
 * is loaded by threads of its own, so that workers which wait for other nodes never keep
 * these waiting. */
#include "stage_internal.h"

#include <errno.h>
#include <xxhash.h>

#include "log.h"

#define QUEUE_MOST 4096u

struct serve {
	struct serve *next;
	uint16_t node;
	uint32_t id, piece;
	uint64_t request;
};

/* Bytes that are on their way to another node. */
struct sending {
	struct clair_stage *st;
	struct flight *flight;
};

static void sent(void *arg)
{
	struct sending *s = arg;

	pthread_mutex_lock(&s->st->lock);
	s->st->sending_bytes -= s->flight->size;
	flight_put(s->st, s->flight);
	pthread_mutex_unlock(&s->st->lock);
	free(s);
}

static struct clair_piece piece_of(const struct serve *g, int status)
{
	return (struct clair_piece){ .request = g->request,
				     .id = g->id,
				     .piece = g->piece,
				     .status = status };
}

/* Answers with the bytes of F, which is loaded and held by the caller. Takes the hold. */
static void answer(struct clair_stage *st, const struct serve *g, struct flight *f)
{
	struct clair_piece p = piece_of(g, 0);
	struct sending *s = malloc(sizeof *s);

	p.length = f->size;
	if (f->buffer) {
		p.region = CLAIR_REGION_BUFFERS;
		p.offset = f->buffer->offset;
		if (p.offset == CLAIR_NOT_SHARED)
			p.status = -ENOBUFS;
	} else {
		p.region = CLAIR_REGION_ARENA;
		p.offset = (uint64_t)(f->data - clair_arena_at(st->arena, 0));
	}
	if (!s)
		p.status = -ENOMEM;
	if (p.status == 0)
		p.hash = XXH3_64bits(f->data, f->size);
	pthread_mutex_lock(&st->lock);
	if (st->sending_bytes + f->size > SENDING_BYTES)
		p.status = -EBUSY; /* others take nothing: no more memory for them */
	st->sending_bytes += s ? f->size : 0;
	/* Whoever takes it slowly must not hold up what this node stages. */
	bool full = st->inflight_bytes >= INFLIGHT_BYTES;
	if (!f->aside && !f->held)
		st->inflight_bytes -= f->size;
	f->aside = true;
	if (!s)
		flight_put(st, f);
	if (full)
		stage_kick(st); /* workers wait for less */
	pthread_mutex_unlock(&st->lock);
	if (s)
		*s = (struct sending){ st, f };
	clair_peers_answer(st->peers, g->node, &p, s ? sent : NULL, s);
}

/* --- large files ---------------------------------------------------------------------- */

struct filling *stage_filling(const struct clair_stage *st, uint32_t id)
{
	struct filling *l = st->fillings;

	while (l && l->id != id)
		l = l->next;
	return l;
}

bool stage_filled(struct clair_stage *st, struct flight *f)
{
	autolock(&st->lock);
	const struct filling *l = stage_filling(st, f->id);
	bool whole = st->samples[f->id].flags & F_ARENA; /* by now */

	if (!whole && (!l || !l->loaded[f->piece]))
		return false;
	f->data = clair_arena_at(st->arena, whole ? st->arena_at[f->id] : l->arena_at) +
		  (uint64_t)f->piece * PIECE;
	clair_count(&st->config.stats->ram.bytes, f->size);
	return true;
}

/* Room for all of ID, or NULL. lock */
static struct filling *begin_filling(struct clair_stage *st, uint32_t id)
{
	uint32_t pieces = (uint32_t)((sample_size(st, id) + PIECE - 1) / PIECE);

	if (!stage_may_keep(st, id))
		return NULL;
	if (stage_large_of(st, id)) /* staged here right now, with room of its own */
		return NULL;
	struct filling *l = calloc(1, sizeof *l + pieces * sizeof l->loaded[0]);
	if (!l)
		return NULL;
	l->id = id;
	l->pieces = pieces;
	l->arena_at = stage_arena_room(st, id);
	if (l->arena_at == CLAIR_ARENA_NONE) {
		free(l);
		return NULL;
	}
	l->next = st->fillings;
	st->fillings = l;
	return l;
}

/* L is whole, or of no use any more. lock */
static void end_filling(struct clair_stage *st, struct filling *l)
{
	struct filling **p = &st->fillings;

	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	if (!(st->samples[l->id].flags & F_CHANGED))
		stage_in_arena(st, l->id, l->arena_at);
	free(l);
}

/* The piece of F goes to where the whole file will be. */
static void keep_piece(struct clair_stage *st, struct flight *f)
{
	pthread_mutex_lock(&st->lock);
	struct filling *l = stage_filling(st, f->id);
	if (!l && !stage_has_home(st, f->id) && !(st->samples[f->id].flags & F_CHANGED))
		l = begin_filling(st, f->id);
	unsigned char *room = l && !l->loaded[f->piece] ? clair_arena_at(st->arena, l->arena_at) :
							  NULL;
	pthread_mutex_unlock(&st->lock);
	if (!room)
		return;
	memcpy(room + (uint64_t)f->piece * PIECE, f->data, f->size);
	autolock(&st->lock);
	l->loaded[f->piece] = true;
	if (++l->done == l->pieces)
		end_filling(st, l);
}

/* --- loading for others --------------------------------------------------------------- */

/* Samples that this node keeps go to the arena, else (whole ones) to a directory. */
void stage_keep_served(struct clair_stage *st, struct flight *f)
{
	if (!clair_peers_keeps(st->peers, f->id))
		return;
	if (sample_size(st, f->id) > PIECE) {
		keep_piece(st, f);
		return;
	}
	pthread_mutex_lock(&st->lock);
	const struct sample *x = &st->samples[f->id];
	if (f->arena_at == CLAIR_ARENA_NONE && !stage_has_home(st, f->id) &&
	    !(x->flags & F_CHANGED) && stage_may_keep(st, f->id))
		f->arena_at = stage_arena_room(st, f->id);
	bool store = f->arena_at != CLAIR_ARENA_NONE;
	bool spill = !store && st->config.disk_count && !stage_has_home(st, f->id);
	pthread_mutex_unlock(&st->lock);
	if (store) {
		flight_store(st, f);
		autolock(&st->lock);
		stage_forget_arena(st, f->id, f->arena_at);
		f->arena_at = CLAIR_ARENA_NONE;
	} else if (spill) {
		flight_spill(st, f);
	}
}

/* The flight of what G asks for, loaded: begun here, or waited for. lock */
static int load(struct clair_stage *st, const struct serve *g, struct flight **out)
{
	struct flight *f = flight_find(st, g->id, g->piece);
	int r;

	if (f) {
		f->holders++;
		*out = f;
		return f->loaded ? f->error : flight_await(st, f);
	}
	f = flight_new(st, g->id, g->piece);
	if (!f)
		return -ENOMEM;
	*out = f;
	f->serving = true;
	pthread_mutex_unlock(&st->lock);
	r = flight_load(st, f);
	if (r == 0)
		stage_keep_served(st, f);
	pthread_mutex_lock(&st->lock);
	flight_finish(st, f, r);
	if (r == -ESTALE)
		stage_mark_changed(st, g->id);
	if (!f->held)
		flight_unlist(st, f);
	return r;
}

static void serve(struct clair_stage *st, const struct serve *g)
{
	struct flight *f = NULL;

	pthread_mutex_lock(&st->lock);
	int r = load(st, g, &f);
	if (r == 0 && (st->samples[g->id].flags & F_CHANGED))
		r = -ESTALE;
	bool full = st->inflight_bytes >= INFLIGHT_BYTES;
	if (r < 0)
		flight_put(st, f);
	if (r < 0 && full)
		stage_kick(st);
	pthread_mutex_unlock(&st->lock);
	if (r == 0) {
		answer(st, g, f);
		return;
	}
	struct clair_piece p = piece_of(g, r);
	clair_peers_answer(st->peers, g->node, &p, NULL, NULL);
}

static void *serve_thread(void *arg)
{
	struct clair_stage *st = arg;

	pthread_mutex_lock(&st->lock);
	while (!st->stopping) {
		struct serve *g = st->serves;
		if (!g) {
			st->servers_idle++;
			pthread_cond_wait(&st->served, &st->lock);
			st->servers_idle--;
			continue;
		}
		st->serves = g->next;
		st->serve_count--;
		pthread_mutex_unlock(&st->lock);
		serve(st, g);
		free(g);
		pthread_mutex_lock(&st->lock);
	}
	st->alive--;
	pthread_cond_broadcast(&st->quiet);
	pthread_mutex_unlock(&st->lock);
	return NULL;
}

/* lock */
static void wake_server(struct clair_stage *st)
{
	if (st->servers_idle >= st->serve_count) {
		pthread_cond_signal(&st->served);
		return;
	}
	if (st->server_count < MAX_SERVERS &&
	    stage_thread(st, serve_thread, &st->servers[st->server_count]) == 0)
		st->server_count++;
	pthread_cond_signal(&st->served);
}

/* From the arena, in the caller's thread: true when that was the answer. */
static bool from_arena(struct clair_stage *st, const struct serve *g, size_t size)
{
	struct clair_piece p = piece_of(g, 0);

	pthread_mutex_lock(&st->lock);
	const struct sample *x = &st->samples[g->id];
	bool here = x->flags & F_ARENA;
	bool hashed = here && stage_known_hash(st, g->id, g->piece, &p.hash);
	if (here)
		p.offset = (uint64_t)(clair_arena_at(st->arena, st->arena_at[g->id]) -
				      clair_arena_at(st->arena, 0)) +
			   (uint64_t)g->piece * PIECE;
	pthread_mutex_unlock(&st->lock);
	if (!here)
		return false;
	p.region = CLAIR_REGION_ARENA;
	p.length = size;
	if (!hashed)
		p.hash = XXH3_64bits(clair_arena_at(st->arena, 0) + p.offset, size);
	clair_peers_answer(st->peers, g->node, &p, NULL, NULL);
	return true;
}

void clair_stage_get(void *self, uint16_t node, uint32_t id, uint32_t piece, uint64_t request)
{
	struct clair_stage *st = self;
	struct serve g = { .node = node, .id = id, .piece = piece, .request = request };
	struct clair_piece wrong = piece_of(&g, -EINVAL);

	if (id >= st->count || clair_catalog_entry(st->catalog, id)->kind != CLAIR_FILE ||
	    (uint64_t)piece * PIECE >= sample_size(st, id)) {
		clair_peers_answer(st->peers, node, &wrong, NULL, NULL);
		return;
	}
	uint64_t left = sample_size(st, id) - (uint64_t)piece * PIECE;
	if (from_arena(st, &g, left < PIECE ? (size_t)left : PIECE))
		return;
	struct serve *copy = malloc(sizeof *copy);
	pthread_mutex_lock(&st->lock);
	bool taken = copy && !st->stopping && st->serve_count < QUEUE_MOST;
	if (taken) {
		*copy = g;
		*(st->serves ? st->serves_last : &st->serves) = copy;
		st->serves_last = &copy->next;
		st->serve_count++;
		wake_server(st);
	}
	pthread_mutex_unlock(&st->lock);
	if (taken) {
		clair_peers_coming(st->peers, node, request);
		return;
	}
	free(copy);
	wrong.status = -EBUSY;
	clair_peers_answer(st->peers, node, &wrong, NULL, NULL);
}

int clair_stage_set_peers(struct clair_stage *st, struct clair_peers *peers,
			  struct clair_placement *placement)
{
	struct clair_peers_server server = { .self = st, .get = clair_stage_get };
	uint64_t bytes;
	int r = 0;

	st->config.keep = CLAIR_KEEP_ARENA;
	stage_decide_keep(st);
	int fd = clair_pool_share(st->pool, SHARED_BYTES);
	if (fd < 0)
		r = fd;
	if (r == 0)
		r = clair_peers_share(peers, CLAIR_REGION_BUFFERS, fd, SHARED_BYTES);
	if (r == 0 && st->arena) {
		int arena = clair_arena_fd(st->arena, &bytes);
		r = clair_peers_share(peers, CLAIR_REGION_ARENA, arena, bytes);
	}
	if (r < 0) {
		clair_placement_free(placement);
		return r;
	}
	clair_peers_begin(peers, placement, st->pool);
	st->peers = peers;
	clair_peers_set_server(peers, &server);
	return 0;
}

void stage_refuse_serves(struct clair_stage *st)
{
	pthread_mutex_lock(&st->lock);
	struct serve *g = take_ptr(st->serves);
	st->serve_count = 0;
	pthread_mutex_unlock(&st->lock);
	while (g) {
		struct serve *next = g->next;
		struct clair_piece p = piece_of(g, -EHOSTDOWN);
		clair_peers_answer(st->peers, g->node, &p, NULL, NULL);
		free(g);
		g = next;
	}
}

void stage_leave_peers(struct clair_stage *st)
{
	if (!st->peers)
		return;
	stage_refuse_serves(st);
	clair_peers_leave(st->peers);
}
