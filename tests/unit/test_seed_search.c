/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "python_random.h"
#include "sampler.h"
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

static struct clair_seed_query query_of(const struct clair_seed_target *targets, size_t count)
{
	return (struct clair_seed_query){ .targets = targets, .count = count, .threads = 2 };
}

static void find(uint32_t seed, uint32_t n, uint32_t skip, uint32_t world, uint32_t rank)
{
	uint64_t *bits = opened_by(seed, n, skip, world, rank, 256);
	struct clair_seed_target t = { .n = n, .world = world, .rank = rank, .skip = skip,
				       .opened = bits, .prefix = 24 };
	struct clair_seed_query q = query_of(&t, 1);
	struct clair_seed_hit hits[8];
	size_t count = 0;

	q.begin = seed - seed % 100000;
	q.end = q.begin + 100000;
	cr_assert_eq(clair_seed_search(&q, hits, 8, &count), 0);
	cr_assert_eq(count, 1, "seed %u n %u world %u: %zu", seed, n, world, count);
	cr_assert_eq(hits[0].seed, seed);
	cr_assert_eq(hits[0].target, 0);
	cr_expect(clair_seed_fits(&t, seed));
	cr_expect_not(clair_seed_fits(&t, seed + 1));
	free(bits);
}

static void find_all(void)
{
	find(42, 5000, 0, 1, 0);
	find(4000000000u, 8121, 0, 1, 0);
	find(77777, 1281167, 0, 1, 0);
	find(123456, 5000, 2, 1, 0);
	find(99, 5000, 0, 4, 3);
	find(99, 50000, 2, 64, 50);
	find(1000099, 60000, 0, 150, 149);
	find(0, 3000, 0, 1, 0);
	find(5, 520, 0, 1, 0);
}

Test(seed_search, every_instruction_set_finds_the_seed)
{
	static const char *const paths[] = { "avx512", "avx2", "scalar" };

	for (int i = 0; i < 3; i++) {
		setenv("CLAIRFS_SIMD", paths[i], 1);
		find_all();
	}
}

/* The seeds of a block are tried for every one of many targets: each must be found by its own
 * and by no other. Ranks too, and the same samples in several places. */
Test(seed_search, many_targets_in_one_pass)
{
	static const uint32_t ns[] = { 700, 701, 9001, 9001, 9001, 9001, 9001, 9001, 9001,
				       9001, 9001, 9001, 9001, 9001, 30000, 30000, 30000 };
	enum { COUNT = sizeof ns / sizeof ns[0] };
	static const char *const paths[] = { "avx512", "avx2", "scalar" };
	struct clair_seed_target t[COUNT];
	uint32_t seed[COUNT];
	struct clair_seed_hit hits[COUNT + 1];
	size_t count;

	for (uint32_t i = 0; i < COUNT; i++) {
		uint32_t world = i > 13 ? 3 : 1, rank = i > 13 ? i - 14 : 0;
		seed[i] = 1000 * i + 17;
		t[i] = (struct clair_seed_target){ .n = ns[i], .world = world, .rank = rank,
						   .skip = i % 2 * 2, .prefix = 24 };
		t[i].opened = opened_by(seed[i], ns[i], t[i].skip, world, rank, 150);
	}
	for (int p = 0; p < 3; p++) {
		struct clair_seed_query q = query_of(t, COUNT);
		q.end = 20000;
		setenv("CLAIRFS_SIMD", paths[p], 1);
		cr_assert_eq(clair_seed_search(&q, hits, COUNT + 1, &count), 0);
		cr_assert_eq(count, COUNT, "%s: %zu", paths[p], count);
		for (uint32_t i = 0; i < COUNT; i++) {
			cr_expect_eq(hits[i].seed, seed[i]);
			cr_expect_eq(hits[i].target, i);
		}
		q.enough = 1;
		cr_assert_eq(clair_seed_search(&q, hits, COUNT + 1, &count), 0);
		cr_expect_geq(count, 1);
	}
	for (uint32_t i = 0; i < COUNT; i++)
		free((void *)(uintptr_t)t[i].opened);
}

/* Whatever is opened, and however little is asked: as many seeds as one by one. */
Test(seed_search, as_many_as_one_by_one)
{
	static const uint32_t ns[] = { 1, 2, 3, 10, 65, 300, 2000 };
	static const char *const paths[] = { "avx512", "avx2", "scalar" };
	uint64_t bits[32], first[32];
	uint32_t x = 7;

	for (unsigned round = 0; round < 60; round++) {
		uint32_t n = ns[round % 7], world = round % 4 + 1, rank = round / 4 % world;
		struct clair_seed_target t = { .n = n, .world = world, .rank = rank,
					       .skip = round % 3, .opened = bits,
					       .prefix = round % 5 + 1 };
		struct clair_seed_query q = query_of(&t, 1);
		struct clair_seed_hit hit;
		size_t count = 0, expected = 0;
		for (unsigned i = 0; i < 32; i++) {
			x = x * 1664525u + 1013904223u;
			bits[i] = (uint64_t)x << 32 | x * 2654435761u;
			first[i] = bits[i] & (bits[i] << 7 | 0xff00ff00ff00ffull);
		}
		if (rank >= n)
			continue;
		if (round & 1)
			t.first = first;
		q.begin = 5000;
		q.end = 6001;
		for (uint32_t seed = 5000; seed < 6001; seed++)
			expected += clair_seed_fits(&t, seed);
		setenv("CLAIRFS_SIMD", paths[round % 3], 1);
		cr_assert_eq(clair_seed_search(&q, &hit, 1, &count), 0);
		cr_expect_eq(count, expected, "n %u world %u rank %u prefix %u: %zu, not %zu",
			     n, world, rank, t.prefix, count, expected);
	}
}

Test(seed_search, the_last_seed)
{
	uint64_t *bits = opened_by(UINT32_MAX, 5000, 0, 1, 0, 128);
	struct clair_seed_target t = { .n = 5000, .world = 1, .opened = bits, .prefix = 20 };
	struct clair_seed_query q = query_of(&t, 1);
	struct clair_seed_hit hits[2];
	size_t count = 0;

	q.begin = (1ull << 32) - 1000;
	q.end = 1ull << 32;
	cr_assert_eq(clair_seed_search(&q, hits, 2, &count), 0);
	cr_assert_eq(count, 1);
	cr_assert_eq(hits[0].seed, UINT32_MAX);
	free(bits);
}

Test(seed_search, nothing_fits_noise)
{
	uint64_t *bits = calloc(100, sizeof *bits);
	struct clair_seed_target t = { .n = 5000, .world = 1, .opened = bits, .prefix = 16 };
	struct clair_seed_query q = query_of(&t, 1);
	struct clair_seed_hit hits[2];
	size_t count = 0;

	for (uint32_t i = 0; i < 256; i++) {
		uint32_t at = i * 2654435761u % 5000;
		bits[at / 64] |= 1ull << at % 64;
	}
	q.end = 1 << 20;
	cr_assert_eq(clair_seed_search(&q, hits, 2, &count), 0);
	cr_assert_eq(count, 0);
	free(bits);
}

Test(seed_search, limits_are_told)
{
	uint64_t bits[2] = { ~0ull, ~0ull };
	struct clair_seed_target t = { .n = 100, .world = 1, .opened = bits, .prefix = 4 };
	struct clair_seed_query q = query_of(&t, 1);
	_Atomic bool cancel = true;
	struct clair_seed_hit hits[16];
	size_t count = 0;

	q.end = 10;
	cr_assert_eq(clair_seed_search(&q, hits, 16, &count), 0);
	cr_assert_eq(count, 10); /* all samples are opened: all seeds fit */
	t.rank = 1;
	cr_assert_eq(clair_seed_search(&q, hits, 16, &count), -EINVAL);
	t.rank = 0;
	t.n = 0;
	cr_assert_eq(clair_seed_search(&q, hits, 16, &count), -EINVAL);
	t.n = 1;
	cr_assert_eq(clair_seed_search(&q, hits, 16, &count), 0);
	t.n = 100;
	q.cancel = &cancel;
	cr_assert_eq(clair_seed_search(&q, hits, 16, &count), -ECANCELED);
	q.count = 0;
	cr_assert_eq(clair_seed_search(&q, hits, 16, &count), -EINVAL);
}

/* RandomSampler without a generator: the epochs' seeds are draws of the default one. */
Test(seed_search, a_draw_of_the_default_generator)
{
	struct clair_mt mt;
	uint64_t position = 0;
	struct clair_seed_hit hit;

	clair_mt_seed(&mt, 1234);
	clair_mt_skip(&mt, 1003);
	uint64_t *bits = opened_by(clair_mt_u32(&mt), 5000, 0, 1, 0, 256);
	struct clair_seed_target t = { .n = 5000, .world = 1, .opened = bits, .prefix = 16 };
	struct clair_seed_query q = query_of(&t, 1);
	static const struct clair_seed_span all = { 0, 5000 },
					    parts[] = { { 3, 900 }, { 1000, 1004 } },
					    beside[] = { { 3, 1003 }, { 1004, 5000 } };
	cr_assert_eq(clair_seed_walk(&q, 1234, &all, 1, &position, &hit), 0);
	cr_assert_eq(position, 1003);
	position = 0;
	cr_assert_eq(clair_seed_walk(&q, 1234, parts, 2, &position, &hit), 0);
	cr_assert_eq(position, 1003);
	cr_assert_eq(clair_seed_walk(&q, 1234, beside, 2, &position, &hit), -ENOENT);
	cr_assert_eq(clair_seed_walk(&q, 1235, &all, 1, &position, &hit), -ENOENT);
	free(bits);
}

/* Entries of Random(SEED).sample(range(N), N) as bits, the first M of them. */
static uint64_t *sampled_by(uint32_t seed, uint32_t n, uint32_t m)
{
	uint32_t *p = malloc(sizeof *p * n);
	uint64_t *bits = calloc(n / 64 + 1, sizeof *bits);
	struct clair_mt mt;

	clair_py_seed(&mt, seed);
	cr_assert_eq(clair_py_sample(&mt, n, n, p), 0);
	for (uint32_t i = 0; i < m && i < n; i++)
		bits[p[i] / 64] |= 1ull << p[i] % 64;
	free(p);
	return bits;
}

Test(seed_search, python_generators)
{
	static const char *const paths[] = { "avx512", "avx2", "scalar" };
	static const uint32_t seeds[] = { 0, 5, 4000000000u, UINT32_MAX },
			      ns[] = { 5000, 4097, 1281167, 600 };

	for (int p = 0; p < 3; p++) {
		setenv("CLAIRFS_SIMD", paths[p], 1);
		for (unsigned i = 0; i < 4; i++) {
			uint64_t *bits = sampled_by(seeds[i], ns[i], 200);
			uint64_t *first = sampled_by(seeds[i], ns[i], 20);
			struct clair_seed_target t = { .n = ns[i], .world = 1, .prefix = 24,
						       .opened = bits, .first = first };
			struct clair_seed_query q = query_of(&t, 1);
			struct clair_seed_hit hit;
			size_t count;
			q.begin = seeds[i] - seeds[i] % 5000;
			q.end = q.begin + 5000 < 1ull << 32 ? q.begin + 5000 : 1ull << 32;
			cr_assert_eq(clair_python_search(&q, &hit, 1, &count), 0);
			cr_assert_eq(count, 1, "%s, seed %u: %zu", paths[p], seeds[i], count);
			cr_expect_eq(hit.seed, seeds[i]);
			t.rank = 1;
			cr_expect_eq(clair_python_search(&q, &hit, 1, &count), -EINVAL);
			free(bits);
			free(first);
		}
	}
}

/* Few samples, rejected draws, the same place twice: as many as by their whole orders. */
Test(seed_search, python_as_many_as_one_by_one)
{
	static const uint32_t ns[] = { 1, 2, 3, 9, 65, 300 };
	uint64_t bits[8];
	uint32_t x = 7, order[300];

	for (unsigned round = 0; round < 24; round++) {
		uint32_t n = ns[round % 6], prefix = round % 4 + 1;
		struct clair_seed_target t = { .n = n, .world = 1, .opened = bits,
					       .prefix = prefix };
		struct clair_seed_query q = query_of(&t, 1);
		struct clair_seed_hit hit;
		size_t count = 0, expected = 0;
		for (unsigned i = 0; i < 8; i++) {
			x = x * 1664525u + 1013904223u;
			bits[i] = (uint64_t)x << 32 | x * 2654435761u;
		}
		q.end = 777;
		for (uint32_t seed = 0; seed < 777; seed++) {
			struct clair_mt mt;
			bool all = true;
			clair_py_seed(&mt, seed);
			clair_py_sample(&mt, n, n, order);
			for (uint32_t i = 0; i < prefix && i < n; i++)
				all = all && bits[order[i] / 64] >> order[i] % 64 & 1;
			expected += all;
		}
		cr_assert_eq(clair_python_search(&q, &hit, 1, &count), 0);
		cr_expect_eq(count, expected, "n %u prefix %u: %zu, not %zu", n, prefix, count,
			     expected);
	}
}

/* The seed of one epoch of fastai gives the epochs after it. */
Test(seed_search, fastai_goes_on_from_any_epoch)
{
	struct clair_words whole = { 0 }, rest = { 0 };
	struct clair_indices a = { 0 }, b = { 0 };
	struct clair_order_params params = { .n = 700, .world = 1, .words = &whole };
	struct clair_sampler *from_begin, *from_second;
	uint32_t *unused = malloc(700 * sizeof *unused);
	char text[16], *error = NULL;
	struct clair_mt mt;

	/* The loader's generator, the first epoch's, the second's. */
	clair_py_seed(&mt, 42);
	for (unsigned i = 0; i < 2; i++)
		clair_py_seed(&mt, clair_py_randbelow(&mt, 1ull << 32));
	cr_assert_eq(clair_py_sample(&mt, 700, 700, unused), 0);
	snprintf(text, sizeof text, "%u", (unsigned)clair_py_randbelow(&mt, 1ull << 32));
	clair_words_set(&whole, "seed", "42");
	clair_words_set(&rest, "seed", text);
	cr_assert_eq(clair_sampler_new("fastai", &params, NULL, NULL, &from_begin, &error), 0);
	params.words = &rest;
	cr_assert_eq(clair_sampler_new("fastai-chain", &params, NULL, NULL, &from_second, &error),
		     0);
	for (uint64_t e = 0; e < 4; e++) {
		uint64_t at = e == 3 ? 0 : e; /* back again, too */
		cr_assert_eq(clair_sampler_epoch(from_begin, at + 1, 0, &a), 0);
		cr_assert_eq(clair_sampler_epoch(from_second, at, 0, &b), 0);
		cr_assert_eq(b.count, 700);
		cr_expect_arr_eq(a.at, b.at, 700 * sizeof *a.at);
	}
	free(unused);
	clair_sampler_free(from_begin);
	clair_sampler_free(from_second);
	clair_indices_finish(&a);
	clair_indices_finish(&b);
	clair_words_finish(&whole);
	clair_words_finish(&rest);
}
