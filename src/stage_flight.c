/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_internal.h"

#include <errno.h>
#include <xxhash.h>

#include "log.h"

static struct flight **bucket(struct clair_stage *st, uint32_t id, uint32_t piece)
{
	return &st->flights[(id * 2654435761u + piece) % FLIGHT_BUCKETS];
}

struct flight *flight_find(struct clair_stage *st, uint32_t id, uint32_t piece)
{
	struct flight *f = *bucket(st, id, piece);

	while (f && (f->id != id || f->piece != piece))
		f = f->next;
	return f;
}

struct flight *flight_new(struct clair_stage *st, uint32_t id, uint32_t piece)
{
	struct flight *f = calloc(1, sizeof *f);
	uint64_t left = sample_size(st, id) - (uint64_t)piece * PIECE;

	if (!f)
		return NULL;
	f->id = id;
	f->piece = piece;
	f->size = left < PIECE ? left : PIECE;
	f->holders = 1;
	f->arena_at = CLAIR_ARENA_NONE;
	f->begun = clair_now_ns();
	clair_cond_init(&f->done);
	f->listed = true;
	struct flight **b = bucket(st, id, piece);
	f->next = *b;
	*b = f;
	st->inflight_bytes += f->size;
	return f;
}

void flight_unlist(struct clair_stage *st, struct flight *f)
{
	if (!f->listed)
		return;
	struct flight **p = bucket(st, f->id, f->piece);
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	f->listed = false;
}

void flight_put(struct clair_stage *st, struct flight *f)
{
	if (!f || --f->holders)
		return;
	flight_unlist(st, f);
	if (!f->aside)
		st->inflight_bytes -= f->size;
	clair_buffer_put(st->pool, f->buffer);
	pthread_cond_destroy(&f->done);
	free(f);
}

void flight_unhold(struct clair_stage *st, struct flight *f)
{
	if (!f->held)
		return;
	f->held = false;
	*(f->older ? &f->older->newer : &st->oldest) = f->newer;
	*(f->newer ? &f->newer->older : &st->newest) = f->older;
	st->held_bytes -= f->size;
	if (!f->aside)
		st->inflight_bytes += f->size;
	flight_unlist(st, f);
	flight_put(st, f);
}

void flight_hold(struct clair_stage *st, struct flight *f)
{
	int64_t now = clair_now_ns();

	if (!f->held) {
		f->held = true;
		f->holders++;
		f->older = st->newest;
		f->newer = NULL;
		*(st->newest ? &st->newest->newer : &st->oldest) = f;
		st->newest = f;
		st->held_bytes += f->size;
		if (!f->aside)
			st->inflight_bytes -= f->size;
	}
	while (st->oldest != f &&
	       (st->held_bytes > HELD_BYTES || now - st->oldest->begun > HELD_NS))
		flight_unhold(st, st->oldest);
}

void flight_finish(struct clair_stage *st, struct flight *f, int error)
{
	f->error = error;
	f->loaded = true;
	if (error < 0)
		flight_unlist(st, f);
	pthread_cond_broadcast(&f->done);
}

int flight_await(struct clair_stage *st, struct flight *f)
{
	int64_t patience = f->begun + PATIENCE_NS - clair_now_ns();
	struct timespec deadline = clair_deadline(patience > 0 ? patience : 0);

	while (!f->loaded) {
		if (pthread_cond_timedwait(&f->done, &st->lock, &deadline) == ETIMEDOUT &&
		    !f->loaded)
			return -ETIMEDOUT;
	}
	return f->error;
}

/* The kernel is told by a worker, never from the handler of a request. */
void stage_queue_invalid(struct clair_stage *st, uint32_t id)
{
	if (st->invalid_count == st->invalid_room) {
		size_t room = st->invalid_room ? 2 * st->invalid_room : 16;
		uint32_t *more = realloc(st->invalids, sizeof *more * room);
		if (!more)
			return;
		st->invalids = more;
		st->invalid_room = room;
	}
	st->invalids[st->invalid_count++] = id;
	stage_kick(st);
}

void stage_mark_changed(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];
	struct flight *f;

	if (!(x->flags & F_CHANGED)) {
		char path[512];
		clair_catalog_path(st->catalog, id, path, sizeof path);
		log_warning("%s: changed on the source; read from there from now on", path);
	}
	if (x->state == S_KEPT || x->state == S_STAGED)
		stage_uncount(st, id);
	if (!(x->flags & F_CHANGED))
		stage_queue_invalid(st, id);
	x->flags |= F_CHANGED;
	x->flags &= (uint8_t) ~(F_ARENA | F_HASHED | F_LOADED);
	if (x->disk)
		clair_disk_forget(st->config.disks[x->disk - 1], id);
	x->disk = 0;
	while ((f = flight_find(st, id, 0)) && f->held)
		flight_unhold(st, f);
}

static int allocate(struct clair_stage *st, struct flight *f)
{
	if (!f->buffer)
		f->buffer = clair_buffer_get(st->pool, f->size);
	if (!f->buffer)
		return -ENOMEM;
	f->data = f->buffer->data;
	return 0;
}

static void damaged(struct clair_stage *st, uint32_t id, const char *where)
{
	char path[512];

	clair_count(&st->config.stats->error_hash, 1);
	clair_catalog_path(st->catalog, id, path, sizeof path);
	log_error("%s: the copy in %s is damaged; fetched from the source again", path, where);
}

static int load_arena(struct clair_stage *st, struct flight *f, uint32_t at, uint64_t hash,
		      bool hashed)
{
	const unsigned char *data =
		clair_arena_at(st->arena, at) + (uint64_t)f->piece * PIECE;

	if (hashed && XXH3_64bits(data, f->size) != hash) {
		damaged(st, f->id, "memory");
		autolock(&st->lock);
		st->samples[f->id].flags &= (uint8_t)~F_ARENA;
		return -EBADMSG;
	}
	f->data = data;
	clair_count(&st->config.stats->ram.samples, f->piece == 0);
	clair_count(&st->config.stats->ram.bytes, f->size);
	return 0;
}

int stage_still_the_same(struct clair_stage *st, uint32_t id)
{
	pthread_mutex_lock(&st->lock);
	bool seen = st->samples[id].flags & F_SEEN;
	pthread_mutex_unlock(&st->lock);
	if (seen || !st->config.saved_catalog)
		return 0;
	if (clair_source_check(st->config.source, id) < 0)
		return -ESTALE; /* the source decides what becomes of it */
	autolock(&st->lock);
	st->samples[id].flags |= F_SEEN;
	return 0;
}

static int load_disk(struct clair_stage *st, struct flight *f, unsigned disk, bool whole)
{
	struct clair_disk *d = st->config.disks[disk];

	int r = stage_still_the_same(st, f->id);
	if (r == 0)
		r = allocate(st, f);
	if (r < 0)
		return r;
	int64_t begun = stage_way_begin(st, WAY_CACHE, f->size);
	if (whole)
		r = clair_disk_read(d, f->id, f->buffer->data, NULL);
	else
		r = clair_disk_pread(d, f->id, f->buffer->data, f->size,
				     (uint64_t)f->piece * PIECE);
	stage_way_end(st, WAY_CACHE, f->size, begun, r >= 0);
	if (r >= 0) {
		clair_count(&st->config.stats->cache.samples, f->piece == 0);
		clair_count(&st->config.stats->cache.bytes, f->size);
		return 0;
	}
	if (r == -EBADMSG)
		damaged(st, f->id, clair_disk_path(d));
	clair_count(&st->config.stats->error_cache, 1);
	if (r == -EBADMSG && !whole && clair_disk_has(d, f->id)) {
		f->mend = (uint8_t)(disk + 1); /* the rest of it is good */
		return r;
	}
	autolock(&st->lock);
	if (st->samples[f->id].disk == disk + 1)
		stage_off_disk(st, f->id);
	return r;
}

static int load_source(struct clair_stage *st, struct flight *f)
{
	bool large = sample_size(st, f->id) > PIECE;
	struct clair_source_file *file;
	struct opened *open = NULL;

	int r = allocate(st, f);
	if (r < 0)
		return r;
	r = large ? stage_file_get(st, f->id, &open) :
		    clair_source_open(st->config.source, f->id, &file);
	if (r < 0)
		return r;
	if (large)
		file = stage_file_of(open);
	size_t ask = (f->size + 4095) & ~(size_t)4095;
	ssize_t n = clair_source_read(file, f->buffer->data, ask, (uint64_t)f->piece * PIECE);
	/* Written anew meanwhile: it would be kept as a mixture. */
	r = n < 0 ? (int)n : clair_source_unchanged(file);
	if (large)
		stage_file_put(st, open);
	else
		clair_source_close(file);
	if (r < 0)
		return r;
	/* It ended early: it is not what the catalog says any more. */
	return (size_t)n < f->size ? -ESTALE : 0;
}

/* From the node that keeps it. KNOWN: the hash that it must have, or NULL. 0; -ESTALE: it is
 * changed, and the source says so too; else the source is asked. */
static int load_peer(struct clair_stage *st, struct flight *f, const uint64_t *known)
{
	uint16_t node = clair_peers_home(st->peers, f->id);
	struct clair_buffer *buffer = NULL;
	uint64_t hash;

	if (node == CLAIR_NO_NODE || node == clair_peers_self(st->peers) ||
	    stage_prefers_source(st, node, f->size))
		return -ENOENT;
	int r = clair_peers_fetch(st->peers, node, f->id, f->piece, f->size, &buffer, &hash);
	if (r == -ESTALE && stage_still_the_same(st, f->id) < 0)
		return r;
	if (r == 0 && known && hash != *known) {
		clair_buffer_put(st->pool, buffer);
		damaged(st, f->id, "another node");
		r = -EBADMSG;
	}
	if (r < 0)
		return r == -ESTALE ? -EIO : r;
	clair_buffer_put(st->pool, f->buffer);
	f->buffer = buffer;
	f->data = buffer->data;
	clair_count(&st->config.stats->peer.samples, f->piece == 0);
	clair_count(&st->config.stats->peer.bytes, f->size);
	if (sample_size(st, f->id) <= PIECE && st->hashes) {
		autolock(&st->lock);
		st->hashes[f->id] = hash;
		st->samples[f->id].flags |= F_HASHED;
	}
	return 0;
}

/* Whether another node is asked before the own directory. */
static bool peer_first(struct clair_stage *st, const struct flight *f)
{
	if (!st->peers || f->serving)
		return false;
	uint16_t node = clair_peers_home(st->peers, f->id);

	return node != CLAIR_NO_NODE && node != clair_peers_self(st->peers) &&
	       stage_prefers_peer(st, node, f->size);
}

/* The piece of F was damaged in a directory, and is here again. */
static void mend(struct clair_stage *st, struct flight *f)
{
	unsigned disk = f->mend - 1u;

	f->mend = 0;
	if (clair_disk_mend(st->config.disks[disk], f->id, f->piece, f->data) == 0 ||
	    clair_disk_has(st->config.disks[disk], f->id))
		return;
	autolock(&st->lock);
	if (st->samples[f->id].disk == disk + 1)
		stage_off_disk(st, f->id);
}

int flight_load(struct clair_stage *st, struct flight *f)
{
	uint64_t hash = 0;
	uint32_t at = CLAIR_ARENA_NONE;
	struct sample x;
	bool whole = sample_size(st, f->id) <= PIECE;

	pthread_mutex_lock(&st->lock);
	x = st->samples[f->id];
	uint64_t *hashes = st->hashes; /* only where tiers keep copies */
	if (x.flags & F_ARENA)
		at = st->arena_at[f->id];
	bool hashed = stage_known_hash(st, f->id, f->piece, &hash);
	pthread_mutex_unlock(&st->lock);
	if ((x.flags & F_ARENA) &&
	    load_arena(st, f, at, hash, hashed) == 0)
		return 0;
	if (x.disk && peer_first(st, f) &&
	    load_peer(st, f, hashed ? &hash : NULL) == 0)
		return 0;
	if (x.disk && load_disk(st, f, x.disk - 1u, whole) == 0) {
		if (!hashed || XXH3_64bits(f->data, f->size) == hash)
			return 0;
		damaged(st, f->id, "a directory");
		clair_disk_forget(st->config.disks[x.disk - 1], f->id);
		autolock(&st->lock);
		stage_off_disk(st, f->id);
	}
	if (st->peers && !whole && stage_filled(st, f))
		return 0;
	if (st->peers && !f->serving) {
		int r = load_peer(st, f, hashed ? &hash : NULL);
		if (r == 0 || r == -ESTALE)
			return r;
	}
	if (st->peers)
		stage_tell_held(st);
	int64_t begun = stage_way_begin(st, WAY_SOURCE, f->size);
	int r = load_source(st, f);
	stage_way_end(st, WAY_SOURCE, f->size, begun, r >= 0);
	if (r == 0 && f->mend)
		mend(st, f);
	if (r < 0 || !whole)
		return r;
	if (hashes)
		hash = XXH3_64bits(f->data, f->size);
	autolock(&st->lock);
	stage_measure(st, clair_now_ns() - begun);
	if (hashes) {
		hashes[f->id] = hash;
		st->samples[f->id].flags |= F_HASHED;
	}
	return 0;
}

void flight_store(struct clair_stage *st, struct flight *f)
{
	if (f->arena_at == CLAIR_ARENA_NONE)
		return;
	memcpy(clair_arena_at(st->arena, f->arena_at), f->data, f->size);
	autolock(&st->lock);
	if (st->samples[f->id].flags & F_CHANGED)
		return;
	stage_in_arena(st, f->id, f->arena_at);
	f->arena_at = CLAIR_ARENA_NONE;
}

void flight_spill(struct clair_stage *st, struct flight *f)
{
	uint64_t hash = XXH3_64bits(f->data, f->size);

	for (size_t i = 0; i < st->config.disk_count; i++) {
		struct clair_disk *d = st->config.disks[i];

		if (clair_disk_claim(d, f->size) < 0)
			continue;
		int r = clair_disk_add(d, f->id, f->data, f->size, hash);
		if (r < 0 && r != -EEXIST) {
			clair_count(&st->config.stats->error_cache, 1);
			continue;
		}
		autolock(&st->lock);
		if (st->samples[f->id].flags & F_CHANGED) {
			clair_disk_forget(d, f->id);
		} else if (!st->samples[f->id].disk) {
			stage_on_disk(st, f->id, (uint8_t)(i + 1));
		}
		return;
	}
}
