/* SPDX-License-Identifier: BSD-3-Clause */
/* The families outside torch against recorded orders, one test a file of vectors. */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "order_vectors.h"

#define VECTORS(name)                    \
	Test(orders, name)               \
	{                                \
		vectors_orders(#name);   \
	}

VECTORS(order_shuffle)
VECTORS(order_tf)
VECTORS(order_dali)
VECTORS(order_nopfs)
VECTORS(order_mosaic)
VECTORS(order_keras)
VECTORS(order_grain)
VECTORS(order_webdataset)
VECTORS(order_fastai)
VECTORS(order_science)
VECTORS(order_hf_stream)
VECTORS(order_litdata)
VECTORS(order_pages)
VECTORS(order_mmdet)
VECTORS(order_speech)
VECTORS(order_text)
VECTORS(order_gpt)
VECTORS(order_megatron)

/* No family may fail at, or read outside of, a data set that is smaller than the job; a
 * rank's epoch asked for again is the same, whatever was asked in between. */
static void edges(const struct clair_family *family, uint32_t n, uint32_t world)
{
	struct clair_words words = { 0 };
	uint64_t sizes[8] = { 1, 0, 1, 0, 1, 1, 1, 1 };
	struct clair_order_params params = { n, world, &words, NULL };
	struct clair_indices first = { 0 }, again = { 0 };
	struct clair_sampler *s = NULL;
	char *error = NULL;

	if (strncmp(family->name, "mmdet", 5) == 0)
		params.sizes = sizes;
	clair_words_set(&words, "workers", "2");
	int r = clair_sampler_new(family->name, &params, NULL, NULL, &s, &error);
	if (r < 0) {
		cr_assert(r == -EINVAL && error, "%s: %d", family->name, r);
		free(error);
		clair_words_finish(&words);
		return;
	}
	for (uint32_t rank = 0; rank < world; rank++) {
		cr_assert_eq(clair_sampler_epoch(s, 1, rank, &first), 0, "%s", family->name);
		for (uint64_t e = 0; e < 3; e += 2)
			cr_assert_eq(clair_sampler_epoch(s, e, world - 1 - rank, &again), 0);
		cr_assert_eq(clair_sampler_epoch(s, 1, rank, &again), 0);
		cr_assert_eq(first.count, again.count, "%s", family->name);
		cr_assert(first.count == 0 ||
			  memcmp(first.at, again.at, first.count * sizeof *first.at) == 0,
			  "%s n=%u world=%u rank=%u", family->name, n, world, rank);
	}
	clair_indices_finish(&first);
	clair_indices_finish(&again);
	clair_sampler_free(s);
	clair_words_finish(&words);
}

Test(orders, edges)
{
	for (size_t i = 0; clair_family_at(i); i++)
		for (uint32_t n = 0; n < 8; n++)
			for (uint32_t world = 1; world < 5; world++)
				edges(clair_family_at(i), n, world);
}
