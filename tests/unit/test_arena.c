/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "arena.h"
#include "buffer.h"

Test(arena, fills_to_the_end)
{
	struct clair_arena *a;
	uint64_t want = 0;

	cr_assert_eq(clair_arena_new(1 << 20, &a), 0);
	uint32_t first = clair_arena_alloc(a, 1000);
	memset(clair_arena_at(a, first), 1, 1000);
	for (int i = 2;; i++) {
		uint32_t at = clair_arena_alloc(a, 1000);
		if (at == CLAIR_ARENA_NONE)
			break;
		memset(clair_arena_at(a, at), i, 1000);
		want += 1000;
	}
	cr_expect_geq(want, (1 << 20) * 97 / 100 - 2000);
	cr_expect_leq(clair_arena_used(a), 1 << 20);
	for (int i = 0; i < 1000; i++)
		cr_assert_eq(clair_arena_at(a, first)[i], 1);
	clair_arena_free(a);
}

Test(arena, undo_gives_back_the_last)
{
	struct clair_arena *a;

	cr_assert_eq(clair_arena_new(8192, &a), 0);
	uint32_t x = clair_arena_alloc(a, 4096), y = clair_arena_alloc(a, 4096);
	cr_expect_eq(clair_arena_alloc(a, 1), CLAIR_ARENA_NONE);
	clair_arena_undo(a, x, 4096); /* not the last: lost */
	cr_expect_eq(clair_arena_alloc(a, 1), CLAIR_ARENA_NONE);
	clair_arena_undo(a, y, 4096);
	cr_expect_eq(clair_arena_alloc(a, 4096), y);
	clair_arena_free(a);
}

Test(buffer, aligned_and_used_again)
{
	struct clair_pool *pool = clair_pool_new(1 << 20);
	struct clair_buffer *a = clair_buffer_get(pool, 100000);
	struct clair_buffer *b = clair_buffer_get(pool, 9 << 20);

	cr_assert(a && b);
	cr_expect_eq((uintptr_t)a->data % 4096, 0);
	cr_expect_geq(a->room, 100000);
	cr_expect_geq(b->room, 9 << 20);
	unsigned char *data = a->data;
	clair_buffer_put(pool, a);
	a = clair_buffer_get(pool, 90000);
	cr_expect_eq(a->data, data);
	clair_buffer_put(pool, a);
	clair_buffer_put(pool, b);
	clair_buffer_put(pool, NULL);
	clair_pool_free(pool);
}

static uint64_t blocks(int fd)
{
	struct stat st;

	cr_assert_eq(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Another process maps the memory: what is written is at the offset that the buffer tells;
 * what does not fit is not shared. */
Test(buffer, shared)
{
	enum { BYTES = 1 << 20, ROOM = 65536, FIT = BYTES / ROOM };
	struct clair_pool *pool = clair_pool_new(0);
	struct clair_buffer *b[FIT + 1], *large;

	int fd = clair_pool_share(pool, BYTES + 100);
	cr_assert_geq(fd, 0);
	const unsigned char *seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert_neq(seen, MAP_FAILED);
	large = clair_buffer_get(pool, 5 << 20);
	cr_expect_eq(large->offset, CLAIR_NOT_SHARED);
	for (int i = 0; i <= FIT; i++) {
		b[i] = clair_buffer_get(pool, ROOM);
		memset(b[i]->data, i + 1, b[i]->room);
	}
	for (int i = 0; i < FIT; i++) {
		cr_assert_leq(b[i]->offset, BYTES - ROOM);
		cr_expect_eq(b[i]->offset % 4096, 0);
		cr_expect_eq(seen[b[i]->offset], i + 1);
		cr_expect_eq(seen[b[i]->offset + ROOM - 1], i + 1);
	}
	cr_expect_eq(b[FIT]->offset, CLAIR_NOT_SHARED, "there was no room any more");
	for (int i = 0; i <= FIT; i++)
		clair_buffer_put(pool, b[i]);
	clair_buffer_put(pool, large);
	munmap((void *)(uintptr_t)seen, BYTES);
	clair_pool_free(pool);
}

/* What goes back over the limit loses its pages, not its place, and is used again. */
Test(buffer, shared_pages_are_given_back)
{
	enum { ROOM = 65536, COUNT = 16 };
	struct clair_pool *pool = clair_pool_new(2 * ROOM);
	struct clair_buffer *b[COUNT];
	uint64_t offsets = 0, again = 0;

	int fd = clair_pool_share(pool, COUNT * ROOM);
	cr_assert_geq(fd, 0);
	for (int i = 0; i < COUNT; i++) {
		b[i] = clair_buffer_get(pool, ROOM);
		cr_assert_neq(b[i]->offset, CLAIR_NOT_SHARED);
		memset(b[i]->data, 0xa5, ROOM);
		offsets |= 1ull << b[i]->offset / ROOM;
	}
	cr_expect_eq(offsets, (1ull << COUNT) - 1, "two have one place");
	cr_expect_eq(blocks(fd), COUNT * ROOM);
	for (int i = 0; i < COUNT; i++)
		clair_buffer_put(pool, b[i]);
	cr_expect_eq(blocks(fd), 2 * ROOM, "%llu bytes stay", (unsigned long long)blocks(fd));
	for (int i = 0; i < COUNT; i++) {
		b[i] = clair_buffer_get(pool, ROOM);
		cr_assert_neq(b[i]->offset, CLAIR_NOT_SHARED, "a place is lost");
		again |= 1ull << b[i]->offset / ROOM;
		if (i >= 2) /* the first are those that were kept */
			cr_expect_eq(b[i]->data[ROOM - 1], 0);
		memset(b[i]->data, i, ROOM);
	}
	cr_expect_eq(again, (1ull << COUNT) - 1, "two have one place");
	for (int i = 0; i < COUNT; i++) {
		cr_expect_eq(b[i]->data[0], i);
		clair_buffer_put(pool, b[i]);
	}
	clair_pool_free(pool);
}
