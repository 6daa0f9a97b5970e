/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <string.h>

#include "mt19937.h"

/* The numbers that the generator's authors published (mt19937ar.out), and the 10000th draw
 * of std::mt19937 that the C++ standard asks for. */
Test(mt19937, published)
{
	static const uint32_t key[] = { 0x123, 0x234, 0x345, 0x456 };
	static const uint32_t want[] = { 1067595299, 955945823, 477289528, 4107218783,
					 4228976476 };
	struct clair_mt mt;

	clair_mt_seed_array(&mt, key, 4);
	for (size_t i = 0; i < 5; i++)
		cr_assert_eq(clair_mt_u32(&mt), want[i], "%zu", i);
	clair_mt_seed(&mt, 5489);
	for (size_t i = 1; i < 10000; i++)
		clair_mt_u32(&mt);
	cr_assert_eq(clair_mt_u32(&mt), 4123659995u);
}

Test(mt19937, skip_is_drawing)
{
	static const uint64_t counts[] = { 0, 1, 3, 623, 624, 625, 1248, 5000, 99999 };

	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
		for (unsigned before = 0; before < 3; before++) {
			struct clair_mt a, b;

			clair_mt_seed(&a, 42);
			for (unsigned k = 0; k < before * 624; k++)
				clair_mt_u32(&a);
			b = a;
			clair_mt_skip(&a, counts[i]);
			for (uint64_t k = 0; k < counts[i]; k++)
				clair_mt_u32(&b);
			cr_assert_eq(clair_mt_u32(&a), clair_mt_u32(&b), "%u after %u",
				     (unsigned)counts[i], before);
		}
}

Test(mt19937, the_high_word_comes_first)
{
	struct clair_mt a, b;

	clair_mt_seed(&a, 7);
	b = a;
	uint64_t high = clair_mt_u32(&b), low = clair_mt_u32(&b);
	cr_assert_eq(clair_mt_u64(&a), high << 32 | low);
}

/* A long key, and a key longer than the state. */
Test(mt19937, long_keys)
{
	uint32_t key[700];
	struct clair_mt a, b;

	for (uint32_t i = 0; i < 700; i++)
		key[i] = i * 2654435761u;
	clair_mt_seed_array(&a, key, 624);
	clair_mt_seed_array(&b, key, 700);
	cr_assert_neq(clair_mt_u32(&a), clair_mt_u32(&b));
}
