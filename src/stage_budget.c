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

void stage_homed(struct clair_stage *st, uint32_t id)
{
	uint64_t size = sample_size(st, id);

	if (st->samples[id].stream)
		st->homeless -= size < st->homeless ? size : st->homeless;
}

void stage_unhomed(struct clair_stage *st, uint32_t id)
{
	if (st->samples[id].stream)
		st->homeless += sample_size(st, id);
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
		if (!stage_has_home(st, id))
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
