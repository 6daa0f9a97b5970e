/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_internal.h"

#include <assert.h>

/* What a sample takes in the kernel beside its bytes: the last page's rest, inode and
 * dentry. Up to 9 % of the budget is slack for that. */
#define INODE_BYTES 1200u

uint64_t stage_real(uint64_t size)
{
	return ((size + 4095) & ~4095ull) + INODE_BYTES;
}

uint64_t stage_real_limit(const struct budget *b)
{
	return b->limit + b->limit / 100 * 9;
}

bool stage_fits(const struct budget *b, uint64_t size, bool pages)
{
	if (b->bytes > b->limit || size > b->limit - b->bytes)
		return false;
	return !pages || b->real + stage_real(size) <= stage_real_limit(b);
}

bool stage_too_large(const struct budget *b, uint64_t size)
{
	return size > b->limit || stage_real(size) > stage_real_limit(b);
}

void stage_take(struct budget *b, uint64_t size)
{
	b->bytes += size;
	b->real += stage_real(size);
	b->samples++;
}

void stage_give(struct budget *b, uint64_t size)
{
	assert(b->bytes >= size && b->samples > 0);
	b->bytes -= size;
	b->real -= stage_real(size);
	b->samples--;
}

bool stage_has_home(const struct clair_stage *st, uint32_t id)
{
	const struct sample *x = &st->samples[id];

	return x->disk || (x->flags & F_ARENA) || x->state == S_KEPT;
}

bool stage_may_keep(const struct clair_stage *st, uint32_t id)
{
	const struct sample *x = &st->samples[id];
	uint64_t size = sample_size(st, id);

	if (st->peers)
		return !(x->flags & F_ARENA) && st->arena && !x->disk &&
		       stage_fits(&st->ram, size, false) && !stage_filling(st, id) &&
		       clair_peers_keeps(st->peers, id);
	if (x->stream == 0 || !st->streams[x->stream - 1].known || (x->flags & F_ARENA))
		return false;
	if (st->keep == CLAIR_KEEP_AUTO || (st->keep == CLAIR_KEEP_ARENA && !st->arena))
		return false;
	/* What a directory has takes RAM only when all the others have found theirs. */
	if (x->disk && !stage_fits(&st->ram, size + st->homeless, false))
		return false;
	return stage_fits(&st->ram, size, st->keep == CLAIR_KEEP_KERNEL);
}

/* Bytes of ID have no home, or have one: counted once whatever copies there are. */
static void count_homeless(struct clair_stage *st, uint32_t id, bool homeless)
{
	uint64_t size = sample_size(st, id);

	if (!st->samples[id].stream)
		return;
	if (homeless)
		st->homeless += size;
	else
		st->homeless -= size < st->homeless ? size : st->homeless;
}

void stage_homed(struct clair_stage *st, uint32_t id)
{
	if (!stage_has_home(st, id))
		count_homeless(st, id, false);
}

void stage_unhomed(struct clair_stage *st, uint32_t id)
{
	if (!stage_has_home(st, id))
		count_homeless(st, id, true);
}

uint32_t stage_arena_room(struct clair_stage *st, uint32_t id)
{
	uint32_t at = clair_arena_alloc(st->arena, sample_size(st, id));

	if (at != CLAIR_ARENA_NONE)
		stage_take(&st->ram, sample_size(st, id));
	return at;
}

void stage_forget_arena(struct clair_stage *st, uint32_t id, uint32_t at)
{
	if (at == CLAIR_ARENA_NONE)
		return;
	clair_arena_undo(st->arena, at, sample_size(st, id));
	stage_give(&st->ram, sample_size(st, id));
}

void stage_in_arena(struct clair_stage *st, uint32_t id, uint32_t at)
{
	stage_homed(st, id);
	st->arena_at[id] = at;
	st->samples[id].flags |= F_ARENA;
}

void stage_on_disk(struct clair_stage *st, uint32_t id, uint8_t disk)
{
	stage_homed(st, id);
	st->samples[id].disk = disk;
}

void stage_off_disk(struct clair_stage *st, uint32_t id)
{
	if (!st->samples[id].disk)
		return;
	st->samples[id].disk = 0;
	stage_unhomed(st, id);
}

void stage_unqueue(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];

	if (!(x->flags & F_QUEUED))
		return;
	x->flags &= (uint8_t)~F_QUEUED;
	st->drop_bytes -= stage_real(sample_size(st, id));
}

void stage_uncount(struct clair_stage *st, uint32_t id)
{
	struct sample *x = &st->samples[id];
	uint64_t size = sample_size(st, id);

	stage_unqueue(st, id);
	switch (x->state) {
	case S_KEPT:
		stage_give(&st->ram, size);
		x->state = S_ABSENT;
		stage_unhomed(st, id);
		break;
	case S_STAGED:
	case S_DROPPING:
		stage_give(&st->staging, size);
		x->state = S_ABSENT;
		break;
	default:
		break;
	}
	x->flags &= (uint8_t)~F_USED;
}
