/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order_vectors.h"
#include "split.h"

/* Parts that the frameworks gave. */
Test(split, recorded)
{
	json_t *root = vectors_load("splits"), *c = NULL;
	size_t i = 0;

	cr_assert(json_array_size(root) > 200);
	json_array_foreach(root, i, c)
	{
		const char *spec = vectors_text(c, "split");
		uint32_t *got = NULL, count = 0;
		char *error = NULL, hash[20];

		int r = clair_split_new(spec, (uint32_t)vectors_u64(c, "n"), &got,
		                        &count, &error);
		cr_assert_eq(r, 0, "%s: %d %s", spec, r, error ? error : "");
		if (json_object_get(c, "order"))
			vectors_same(json_object_get(c, "order"), got, count,
			             json_is_true(json_object_get(c, "prefix")), spec);
		else
			cr_assert_eq(count, vectors_u64(c, "len"), "%s: %u", spec,
			             count);
		if (json_object_get(c, "fnv")) {
			snprintf(hash, sizeof hash, "%016" PRIx64,
			         vectors_fnv(1469598103934665603u, got, count));
			cr_assert_str_eq(hash, vectors_text(c, "fnv"), "%s", spec);
		}
		free(got);
	}
	json_decref(root);
}

Test(split, parts_are_the_whole)
{
	static const char *const pairs[][2] = {
	    {"torch:3:0.5/0.5:0", "torch:3:0.5/0.5:1"},
	    {"sklearn:3:0.3:train", "sklearn:3:0.3:test"},
	    {"hf:3:0.3:train", "hf:3:0.3:test"},
	    {"fastai:3:0.3:train", "fastai:3:0.3:valid"},
	    {"keras:3:0.3:train", "keras:3:0.3:validation"},
	    {"pandas:3:0.3:sample", "pandas:3:0.3:rest"},
	    {"kfold:3:7:train6", "kfold:3:7:test6"},
	};

	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		unsigned seen[101] = {0};

		for (int k = 0; k < 2; k++) {
			uint32_t *got = NULL, count = 0;
			char *error = NULL;

			cr_assert_eq(
			    clair_split_new(pairs[i][k], 101, &got, &count, &error), 0,
			    "%s", pairs[i][k]);
			for (uint32_t j = 0; j < count; j++)
				seen[got[j]]++;
			free(got);
		}
		for (size_t j = 0; j < 101; j++)
			cr_assert_eq(seen[j], 1, "%s: %zu", pairs[i][0], j);
	}
}

Test(split, mistakes)
{
	static const char *const specs[] = {
	    "torch",
	    "torch:1:0.5",
	    "torch:x:0.5/0.5:0",
	    "torch:1:0.5/0.5:2",
	    "torch:1:0.5/0.9:0",
	    "torch:1:-1/0.5:0",
	    "sklearn:1:0.2:middle",
	    "sklearn:1:200:train",
	    "sklearn:4294967296:0.2:train",
	    "sklearn:1:0.2/0.9:test",
	    "keras:1:0.2/0.8:train",
	    "hf:1:2.5:train",
	    "kfold:1:5:test5",
	    "kfold:1:5:fold1",
	    "kfold:1:1:test0",
	    "kfold:1:5:test",
	    "pandas:1:0.5:train",
	    "pandas:1:200:sample",
	    "weka:1:0.5:train",
	    "torch:1::0",
	};

	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
		uint32_t *got = NULL, count = 0;
		char *error = NULL;

		cr_assert_eq(clair_split_new(specs[i], 100, &got, &count, &error),
		             -EINVAL, "%s", specs[i]);
		cr_assert(error && strstr(error, specs[i]) && !strchr(error, '\n'),
		          "%s: %s", specs[i], error);
		free(error);
	}
}

/* Nothing to split is no mistake where the framework takes it. */
Test(split, empty)
{
	uint32_t *got = NULL, count = 1;
	char *error = NULL;

	cr_assert_eq(clair_split_new("torch:1:0.5/0.5:0", 0, &got, &count, &error), 0);
	cr_assert_eq(count, 0);
	free(got);
}
