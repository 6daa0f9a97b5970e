/* SPDX-License-Identifier: BSD-3-Clause */
#include "arena.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct clair_arena {
	int fd;
	unsigned char *base;
	uint64_t room;        /* bytes mapped */
	uint64_t used, units; /* in units */
};

static uint64_t to_units(uint64_t bytes)
{
	return (bytes + CLAIR_ARENA_UNIT - 1) / CLAIR_ARENA_UNIT;
}

int clair_arena_new(uint64_t bytes, struct clair_arena **out)
{
	struct clair_arena *a = calloc(1, sizeof *a);

	if (!a)
		return -ENOMEM;
	a->units = bytes / CLAIR_ARENA_UNIT;
	if (a->units > CLAIR_ARENA_NONE - 1)
		a->units = CLAIR_ARENA_NONE - 1;
	a->room = (a->units * CLAIR_ARENA_UNIT + 4096) & ~4095ull;
	a->fd = memfd_create("clairfs-arena", MFD_CLOEXEC);
	if (a->fd < 0 || ftruncate(a->fd, (off_t)a->room) < 0) {
		int r = -errno;
		if (a->fd >= 0)
			close(a->fd);
		free(a);
		return r;
	}
	a->base = mmap(NULL, a->room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
		       a->fd, 0);
	if (a->base == MAP_FAILED) {
		int r = -errno;
		close(a->fd);
		free(a);
		return r;
	}
	*out = a;
	return 0;
}

int clair_arena_fd(const struct clair_arena *a, uint64_t *bytes)
{
	*bytes = a->room;
	return a->fd;
}

void clair_arena_free(struct clair_arena *a)
{
	if (!a)
		return;
	munmap(a->base, a->room);
	close(a->fd);
	free(a);
}

uint32_t clair_arena_alloc(struct clair_arena *a, uint64_t size)
{
	uint64_t units = to_units(size);

	if (units > a->units - a->used)
		return CLAIR_ARENA_NONE;
	uint32_t at = (uint32_t)a->used;
	a->used += units;
	return at;
}

void clair_arena_undo(struct clair_arena *a, uint32_t at, uint64_t size)
{
	if (at + to_units(size) == a->used)
		a->used = at;
}

unsigned char *clair_arena_at(const struct clair_arena *a, uint32_t at)
{
	return a->base + (uint64_t)at * CLAIR_ARENA_UNIT;
}

uint64_t clair_arena_used(const struct clair_arena *a)
{
	return a->used * CLAIR_ARENA_UNIT;
}
