/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of several pieces: all pieces go at once through one open file, to the page cache
 * and to where a copy is kept. No locks are held around I/O and pushes. */
#include "stage_internal.h"

#include <errno.h>
#include <xxhash.h>

struct large *stage_new_large(struct clair_stage *st, uint32_t id)
{
	uint32_t pieces = (uint32_t)((sample_size(st, id) + PIECE - 1) / PIECE);
	struct large *l = calloc(1, sizeof *l + (pieces / 64 + 1ul) * sizeof l->claimed[0]);

	if (!l)
		return NULL;
	l->id = id;
	l->pieces = pieces;
	l->arena_at = CLAIR_ARENA_NONE;
	return l;
}

void stage_add_large(struct clair_stage *st, struct large *large)
{
	struct large **end = &st->larges;

	while (*end)
		end = &(*end)->next;
	*end = large;
}

struct large *stage_large_of(struct clair_stage *st, uint32_t id)
{
	struct large *l = st->larges;

	while (l && l->id != id)
		l = l->next;
	return l;
}

struct flight *stage_claim_piece(struct clair_stage *st, struct large *l, uint32_t piece)
{
	if (l->failed || (l->claimed[piece / 64] >> piece % 64 & 1))
		return NULL;
	struct flight *f = flight_new(st, l->id, piece);
	if (!f)
		return NULL;
	l->claimed[piece / 64] |= 1ull << piece % 64;
	l->begun++;
	while (l->first < l->pieces && (l->claimed[l->first / 64] >> l->first % 64 & 1))
		l->first++;
	return f;
}

struct flight *stage_next_piece(struct clair_stage *st, struct large *l, bool room)
{
	struct flight *f = l->loaded;

	/* Until its file is open, a second piece would only wait for that. */
	if (l->beginning && !l->ready)
		return NULL;
	if (f)
		l->loaded = f->next_spill;
	else if (room && l->first < l->pieces)
		f = stage_claim_piece(st, l, l->first);
	l->beginning = l->beginning || f;
	return f;
}

/* Whether the bytes of ID can come from the source only. lock */
static bool only_source(const struct clair_stage *st, uint32_t id)
{
	return !st->peers && !st->samples[id].disk && !(st->samples[id].flags & F_ARENA);
}

/* Opens the file, and claims room in a directory: once for all pieces. */
static void begin(struct clair_stage *st, struct large *l)
{
	struct piece_hashes *hashes = NULL;

	pthread_mutex_lock(&st->lock);
	bool source = only_source(st, l->id);
	bool hash = st->hashes && !(st->samples[l->id].flags & F_HASHED);
	pthread_mutex_unlock(&st->lock);
	if (source && stage_file_get(st, l->id, &l->file) < 0)
		l->file = NULL; /* the load says why */
	for (size_t i = 0; l->spill && !l->writer && i < st->config.disk_count; i++)
		if (clair_disk_begin(st->config.disks[i], l->id, &l->writer) == 0)
			l->disk = (uint8_t)(i + 1);
	if (hash)
		hashes = malloc(sizeof *hashes + l->pieces * sizeof hashes->hash[0]);
	autolock(&st->lock);
	l->hashes = hashes;
	l->ready = true;
	stage_kick(st);
}

/* Puts what was loaded where copies are kept. */
static void copy(struct clair_stage *st, struct large *l, struct flight *f)
{
	if (l->arena_at != CLAIR_ARENA_NONE)
		memcpy(clair_arena_at(st->arena, l->arena_at) + (uint64_t)f->piece * PIECE,
		       f->data, f->size);
	if (!l->hashes && !l->writer)
		return;
	uint64_t hash = XXH3_64bits(f->data, f->size);
	if (l->hashes)
		l->hashes->hash[f->piece] = hash;
	if (!l->writer || atomic_load(&l->copy_failed))
		return;
	if (clair_disk_write(l->writer, f->piece, f->data, f->size, hash) < 0 &&
	    !atomic_exchange(&l->copy_failed, true))
		clair_count(&st->config.stats->error_cache, 1);
}

/* Its copies are good, or of no use. lock */
static void settle(struct clair_stage *st, struct large *l)
{
	struct sample *x = &st->samples[l->id];
	bool good = !l->failed && !(x->flags & F_CHANGED);

	if (good && l->hashes && !(x->flags & F_HASHED)) {
		l->hashes->next = st->piece_hashes;
		st->piece_hashes = l->hashes;
		st->hashes[l->id] = (uint64_t)(uintptr_t)take_ptr(l->hashes);
		x->flags |= F_HASHED;
	}
	if (!good) {
		stage_forget_arena(st, l->id, l->arena_at);
	} else if (l->arena_at != CLAIR_ARENA_NONE) {
		stage_in_arena(st, l->id, l->arena_at);
	}
	stage_settle(st, l->id, l->keep, l->failed ? -EIO : 0);
}

/* The directory's copy is whole. */
static void commit(struct clair_stage *st, struct large *l)
{
	struct clair_disk *disk = st->config.disks[l->disk - 1];

	int r = clair_disk_commit(take_ptr(l->writer));
	if (r < 0 && r != -EEXIST) {
		if (!atomic_load(&l->copy_failed))
			clair_count(&st->config.stats->error_cache, 1);
		return;
	}
	autolock(&st->lock);
	if (st->samples[l->id].flags & F_CHANGED) {
		clair_disk_forget(disk, l->id);
	} else if (!st->samples[l->id].disk) {
		stage_on_disk(st, l->id, l->disk);
	}
}

void stage_free_large(struct clair_stage *st, struct large *l)
{
	stage_file_put(st, l->file);
	clair_disk_abort(l->writer);
	free(l->hashes);
	free(l);
}

/* All pieces that were begun are finished. */
static void finish(struct clair_stage *st, struct large *l)
{
	pthread_mutex_lock(&st->lock);
	struct large **p = &st->larges;
	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	settle(st, l);
	bool whole = !l->failed && !(st->samples[l->id].flags & F_CHANGED);
	pthread_mutex_unlock(&st->lock);
	if (l->writer && whole)
		commit(st, l);
	stage_free_large(st, l);
}

void stage_run_piece(struct clair_stage *st, struct large *l, struct flight *f)
{
	autoclose int fd = -1;

	pthread_mutex_lock(&st->lock);
	bool ready = l->ready;
	pthread_mutex_unlock(&st->lock);
	if (!ready)
		begin(st, l);
	int r = f->loaded ? f->error : flight_load(st, f);
	if (!f->loaded) {
		autolock(&st->lock);
		flight_finish(st, f, r);
	}
	if (r == 0)
		r = stage_push_bytes(st, f->id, &fd, (uint64_t)f->piece * PIECE, f->data,
				     f->size);
	if (r == 0)
		copy(st, l, f);
	pthread_mutex_lock(&st->lock);
	flight_unlist(st, f);
	l->failed = l->failed || r < 0;
	if (r == -ESTALE)
		stage_mark_changed(st, f->id);
	flight_put(st, f);
	bool last = ++l->finished == (l->failed ? l->begun : l->pieces);
	pthread_mutex_unlock(&st->lock);
	if (last)
		finish(st, l);
}
