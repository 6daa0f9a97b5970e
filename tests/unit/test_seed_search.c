/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>

#include <stdlib.h>
#include <string.h>

#include "seed_search.h"
#include "torch_perm.h"

/* The bits of the first M entries of RANK that SEED's permutation has. */
static uint64_t *opened_by(uint32_t seed, uint32_t n, uint32_t skip, uint32_t world,
			   uint32_t rank, uint32_t m)
{
	uint32_t *p = malloc(sizeof *p * n);
	uint64_t *bits = calloc(n / 64 + 1, sizeof *bits);
	struct clair_mt mt;

	clair_mt_seed(&mt, seed);
	clair_mt_skip(&mt, skip);
	clair_torch_randperm(&mt, n, p);
	for (uint32_t i = rank, k = 0; i < n && k < m; i += world, k++)
		bits[p[i] / 64] |= 1ull << p[i] % 64;
	free(p);
	return bits;
}

static void find(uint32_t seed, uint32_t n, uint32_t skip, uint32_t world, uint32_t rank)
{
	uint64_t *bits = opened_by(seed, n, skip, world, rank, 256);
	struct clair_seed_query q = { .n = n, .world = world, .rank = rank, .skip = skip,
				      .opened = bits, .prefix = 24,
				      .begin = seed - seed % 100000, .threads = 2 };
	uint32_t seeds[8];
	size_t count = 0;

	q.end = q.begin + 100000;
	cr_assert_eq(clair_seed_search(&q, seeds, 8, &count), 0);
	cr_assert_eq(count, 1, "seed %u n %u: %zu", seed, n, count);
	cr_assert_eq(seeds[0], seed);
	free(bits);
}

static void find_all(void)
{
	find(42, 5000, 0, 1, 0);
	find(4000000000u, 8121, 0, 1, 0);
	find(77777, 1281167, 0, 1, 0);
	find(123456, 5000, 2, 1, 0);
	find(99, 5000, 0, 4, 3);
	find(0, 3000, 0, 1, 0);
}

Test(seed_search, every_instruction_set_finds_the_seed)
{
	static const char *const paths[] = { "avx512", "avx2", "scalar" };

	for (int i = 0; i < 3; i++) {
		setenv("CLAIRFS_SIMD", paths[i], 1);
		find_all();
	}
}

Test(seed_search, the_last_seed)
{
	uint64_t *bits = opened_by(UINT32_MAX, 5000, 0, 1, 0, 128);
	struct clair_seed_query q = { .n = 5000, .world = 1, .opened = bits, .prefix = 20,
				      .begin = (1ull << 32) - 1000, .end = 1ull << 32,
				      .threads = 1 };
	uint32_t seeds[2];
	size_t count = 0;

	cr_assert_eq(clair_seed_search(&q, seeds, 2, &count), 0);
	cr_assert_eq(count, 1);
	cr_assert_eq(seeds[0], UINT32_MAX);
	free(bits);
}

Test(seed_search, nothing_fits_noise)
{
	uint64_t *bits = calloc(100, sizeof *bits);
	struct clair_seed_query q = { .n = 5000, .world = 1, .opened = bits, .prefix = 16,
				      .end = 1 << 20, .threads = 2 };
	uint32_t seeds[2];
	size_t count = 0;

	for (uint32_t i = 0; i < 256; i++) {
		uint32_t at = i * 2654435761u % 5000;
		bits[at / 64] |= 1ull << at % 64;
	}
	cr_assert_eq(clair_seed_search(&q, seeds, 2, &count), 0);
	cr_assert_eq(count, 0);
	free(bits);
}

Test(seed_search, limits_are_told)
{
	uint64_t bits[2] = { ~0ull, ~0ull };
	struct clair_seed_query q = { .n = 100, .world = 1, .opened = bits, .prefix = 4,
				      .end = 10, .threads = 1 };
	_Atomic bool cancel = true;
	uint32_t seeds[16];
	size_t count = 0;

	cr_assert_eq(clair_seed_search(&q, seeds, 16, &count), 0);
	cr_assert_eq(count, 10); /* all samples are opened: all seeds fit */
	q.rank = 1;
	cr_assert_eq(clair_seed_search(&q, seeds, 16, &count), -EINVAL);
	q.rank = 0;
	q.n = 0;
	cr_assert_eq(clair_seed_search(&q, seeds, 16, &count), -EINVAL);
	q.n = 1;
	cr_assert_eq(clair_seed_search(&q, seeds, 16, &count), 0);
	q.n = 100;
	q.cancel = &cancel;
	cr_assert_eq(clair_seed_search(&q, seeds, 16, &count), -ECANCELED);
}

/* RandomSampler without a generator: the epochs' seeds are draws of the default one. */
Test(seed_search, a_draw_of_the_default_generator)
{
	struct clair_mt mt;
	uint64_t position = 0;

	clair_mt_seed(&mt, 1234);
	clair_mt_skip(&mt, 1003);
	uint64_t *bits = opened_by(clair_mt_u32(&mt), 5000, 0, 1, 0, 256);
	struct clair_seed_query q = { .n = 5000, .world = 1, .opened = bits, .prefix = 16 };
	cr_assert_eq(clair_seed_walk(&q, 1234, 5000, &position), 0);
	cr_assert_eq(position, 1003);
	position = 0;
	cr_assert_eq(clair_seed_walk(&q, 1235, 5000, &position), -ENOENT);
	free(bits);
}
