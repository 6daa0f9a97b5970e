/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

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
