/* SPDX-License-Identifier: BSD-3-Clause */
/* torch's own samplers against orders that torch itself gave. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "mt19937.h"
#include "order_vectors.h"
#include "torch_draw.h"
#include "words.h"

Test(torch, orders)
{
	vectors_orders("order_torch");
}

Test(torch, randperm)
{
	json_t *root = vectors_load("torch_randperm"), *c = NULL;
	size_t i = 0;

	json_array_foreach(json_object_get(root, "cases"), i, c)
	{
		uint32_t n = (uint32_t)vectors_u64(c, "n"),
		         *got = malloc(sizeof *got * (n + 1));
		struct clair_mt mt;

		clair_torch_seed(&mt, vectors_u64(c, "seed"));
		clair_torch_randperm(&mt, n, got);
		vectors_same(json_object_get(c, "order"), got, n, false, "randperm");
		free(got);
	}
	json_array_foreach(json_object_get(root, "hashed"), i, c)
	{
		uint32_t n = (uint32_t)vectors_u64(c, "n"),
		         *got = malloc(sizeof *got * (n + 1));
		struct clair_mt mt;

		clair_torch_seed(&mt, vectors_u64(c, "seed"));
		clair_torch_randperm(&mt, n, got);
		vectors_hashed(c, got, n, "long randperm");
		free(got);
	}
	json_decref(root);
}

Test(torch, distributed_long)
{
	json_t *root = vectors_load("torch_distributed_long"), *c = NULL;
	size_t i = 0;

	json_array_foreach(root, i, c)
	{
		struct clair_words words = {0};
		struct clair_order_params params = {
		    .n = (uint32_t)vectors_u64(c, "n"),
		    .world = (uint32_t)vectors_u64(c, "world"),
		    .words = &words};
		struct clair_sampler *sampler = NULL;
		struct clair_indices got = {0};
		char *error = NULL;

		clair_words_set(&words, "seed", vectors_text(c, "seed"));
		cr_assert_eq(clair_sampler_new("torch-distributed", &params, NULL, NULL,
		                               &sampler, &error),
		             0, "%s", error);
		cr_assert_eq(clair_sampler_epoch(sampler, vectors_u64(c, "epoch"),
		                                 (uint32_t)vectors_u64(c, "rank"),
		                                 &got),
		             0);
		vectors_hashed(c, got.at, got.count, "long distributed");
		clair_indices_finish(&got);
		clair_sampler_free(sampler);
		clair_words_finish(&words);
	}
	json_decref(root);
}

/* From 214,748,364 on other draws are made: no memory for that here, but the count is
 * kept. */
Test(torch, draws_of_a_permutation)
{
	cr_assert_eq(clair_torch_randperm_draws(0), 0);
	cr_assert_eq(clair_torch_randperm_draws(1), 0);
	cr_assert_eq(clair_torch_randperm_draws(214748363), 214748362);
	cr_assert_eq(clair_torch_randperm_draws(214748364), 429496728);
}

Test(torch, models)
{
	cr_assert_eq(clair_torch_model_draws("resnet18"), 22846824);
	cr_assert_eq(clair_torch_model_draws("torchvision/resnet50"), 48958824);
	cr_assert_eq(clair_torch_model_draws("timm/resnet50"), 48958824);
	cr_assert_eq(clair_torch_model_draws("resnet19"), 0);
	cr_assert_not_null(clair_torch_model_at(0));
	cr_assert_null(clair_torch_model_at(1000));
}

static void expect_mistake(const char *name, const char *key, const char *value,
                           const char *in_message)
{
	struct clair_words words = {0};
	struct clair_order_params params = {.n = 10, .world = 1, .words = &words};
	struct clair_sampler *sampler = NULL;
	char *error = NULL;

	clair_words_set(&words, key, value);
	int r = clair_sampler_new(name, &params, NULL, NULL, &sampler, &error);
	cr_assert_eq(r, -22, "%s %s=%s: %d", name, key, value, r);
	cr_assert_not_null(error);
	cr_assert(strstr(error, in_message) && !strchr(error, '\n'), "%s", error);
	free(error);
	clair_words_finish(&words);
}

Test(torch, mistakes)
{
	expect_mistake("torch-default", "model", "resnet19", "resnet19");
	expect_mistake("torch-default", "skip", "-1", "skip=-1");
	expect_mistake("torch-default", "version", "new", "version=new");
	expect_mistake("torch-weighted", "weights", "/nonexistent/file",
	               "/nonexistent/file");
	expect_mistake("torch-random", "num_samples", "many", "num_samples=many");
	expect_mistake("torch-distributed", "persistent", "1", "persistent");
}

/* Epochs may be asked for in any order. */
Test(torch, any_epoch)
{
	static const char *const names[] = {"torch-default", "torch-random",
	                                    "torch-subset", "torch-stateful",
	                                    "torch-distributed"};

	for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
		struct clair_words words = {0};
		struct clair_order_params params = {
		    .n = 100, .world = 1, .words = &words};
		struct clair_sampler *sampler = NULL;
		struct clair_indices first = {0}, again = {0};
		char *error = NULL;

		cr_assert_eq(
		    clair_sampler_new(names[k], &params, NULL, NULL, &sampler, &error),
		    0);
		cr_assert_eq(clair_sampler_epoch(sampler, 5, 0, &first), 0);
		cr_assert_eq(clair_sampler_epoch(sampler, 9, 0, &again), 0);
		cr_assert(memcmp(first.at, again.at, 400) != 0, "%s", names[k]);
		cr_assert_eq(clair_sampler_epoch(sampler, 5, 0, &again), 0);
		cr_assert(memcmp(first.at, again.at, 400) == 0, "%s", names[k]);
		clair_indices_finish(&first);
		clair_indices_finish(&again);
		clair_sampler_free(sampler);
		clair_words_finish(&words);
	}
}
