/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of several pieces: in parallel, or one piece after the other, with a copy of the
 * whole, where a directory is to have them. No locks are held around I/O and pushes. */
#include "stage_internal.h"

#include <errno.h>
#include <xxhash.h>

void stage_run_piece(struct clair_stage *st, struct large *large, struct flight *f)
{
	autoclose int fd = -1;
	int r = flight_load(st, f);

	pthread_mutex_lock(&st->lock);
	flight_finish(st, f, r);
	pthread_mutex_unlock(&st->lock);
	if (r == 0 && large->arena_at != CLAIR_ARENA_NONE)
		memcpy(clair_arena_at(st->arena, large->arena_at) +
			       (uint64_t)f->piece * PIECE,
		       f->data, f->size);
	if (r == 0)
		r = stage_push_bytes(st, f->id, &fd, (uint64_t)f->piece * PIECE, f->data,
				     f->size);
	autolock(&st->lock);
	flight_unlist(st, f);
	if (r < 0 && !large->failed)
		large->failed = true;
	if (r == -ESTALE)
		stage_mark_changed(st, f->id);
	flight_put(st, f);
	if (++large->finished < (large->failed ? large->begun : large->pieces))
		return;
	if (large->failed || (st->samples[large->id].flags & F_CHANGED)) {
		stage_forget_arena(st, large->id, large->arena_at);
	} else if (large->arena_at != CLAIR_ARENA_NONE) {
		st->arena_at[large->id] = large->arena_at;
		st->samples[large->id].flags |= F_ARENA;
		stage_homed(st, large->id);
	}
	stage_settle(st, large->id, large->keep, large->failed ? -EIO : 0);
	struct large **p = &st->larges;
	while (*p != large)
		p = &(*p)->next;
	*p = large->next;
	free(large);
}

/* A directory with room for ID, claimed; NULL: none. */
static struct clair_disk *claim(struct clair_stage *st, uint32_t id, size_t *number)
{
	for (*number = 0; *number < st->config.disk_count; ++*number)
		if (clair_disk_claim(st->config.disks[*number], sample_size(st, id)) == 0)
			return st->config.disks[*number];
	return NULL;
}

/* Loads and pushes one piece, and copies it to INTO. */
static int one_piece(struct clair_stage *st, uint32_t id, uint32_t piece, int *fd,
		     unsigned char *into)
{
	pthread_mutex_lock(&st->lock);
	struct flight *f = flight_new(st, id, piece);
	pthread_mutex_unlock(&st->lock);
	if (!f)
		return -ENOMEM;
	int r = flight_load(st, f);
	pthread_mutex_lock(&st->lock);
	flight_finish(st, f, r);
	if (st->stopping && r == 0)
		r = -EINTR;
	pthread_mutex_unlock(&st->lock);
	if (r == 0) {
		memcpy(into + (uint64_t)piece * PIECE, f->data, f->size);
		r = stage_push_bytes(st, id, fd, (uint64_t)piece * PIECE, f->data, f->size);
	}
	autolock(&st->lock);
	flight_unlist(st, f);
	flight_put(st, f);
	return r;
}

static void add(struct clair_stage *st, struct clair_disk *disk, size_t number, uint32_t id,
		const unsigned char *bytes)
{
	uint64_t size = sample_size(st, id);

	int r = clair_disk_add(disk, id, bytes, size, XXH3_64bits(bytes, size));
	if (r < 0 && r != -EEXIST) {
		clair_count(&st->config.stats->error_cache, 1);
		return;
	}
	autolock(&st->lock);
	if (st->samples[id].flags & F_CHANGED) {
		clair_disk_forget(disk, id);
	} else if (!st->samples[id].disk) {
		bool homed = stage_has_home(st, id);
		st->samples[id].disk = (uint8_t)(number + 1);
		if (!homed)
			stage_homed(st, id);
	}
}

void stage_run_large(struct clair_stage *st, struct large *large)
{
	uint32_t id = large->id;
	uint64_t size = sample_size(st, id);
	size_t number;
	struct clair_disk *disk = claim(st, id, &number);
	struct clair_buffer *copy = disk ? clair_buffer_get(st->pool, size) : NULL;

	if (!copy) {
		/* As if there were no directories. */
		if (disk)
			clair_disk_unclaim(disk, size);
		autolock(&st->lock);
		st->copying = false;
		stage_add_large(st, large);
		stage_kick(st);
		return;
	}
	autoclose int fd = -1;
	int r = 0;
	for (uint32_t i = 0; r == 0 && i < large->pieces; i++)
		r = one_piece(st, id, i, &fd, copy->data);
	pthread_mutex_lock(&st->lock);
	stage_settle(st, id, large->keep, r);
	pthread_mutex_unlock(&st->lock);
	if (r == 0)
		add(st, disk, number, id, copy->data);
	else
		clair_disk_unclaim(disk, size);
	clair_buffer_put(st->pool, copy);
	free(large);
	autolock(&st->lock);
	st->copying = false;
	stage_kick(st);
}
