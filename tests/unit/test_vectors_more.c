/* SPDX-License-Identifier: BSD-3-Clause */
/* Vectors that no family's own test has: seeds of workers and of frameworks that draw their own,
 * numbers in wide ranges, splits of Hugging Face's datasets, orders recorded with torch 2.15. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "index.h"
#include "numpy_random.h"
#include "order_vectors.h"
#include "python_random.h"
#include "split.h"
#include "torch_perm.h"
#include "words.h"

Test(vectors_more, orders)
{
	vectors_orders("order_more");
}

static void check_split(const char *spec, uint32_t n, const json_t *order, const json_t *hashed)
{
	autofree uint32_t *got = NULL;
	char *error = NULL;
	uint32_t count = 0;

	int r = clair_split_new(spec, n, &got, &count, &error);
	cr_assert_eq(r, 0, "%s: %d %s", spec, r, error ? error : "");
	if (hashed)
		vectors_hashed(hashed, got, count, spec);
	else
		vectors_same(order, got, count, false, spec);
}

Test(vectors_more, splits_of_hugging_face)
{
	json_t *root = vectors_load("seeds"), *c = NULL;
	size_t i = 0;

	cr_assert_gt(json_array_size(json_object_get(root, "splits")), 10);
	json_array_foreach(json_object_get(root, "splits"), i, c)
		check_split(vectors_text(c, "split"), (uint32_t)vectors_u64(c, "n"),
			    json_object_get(c, "order"), json_object_get(c, "hashed"));
	json_decref(root);
}

/* Without a seed the next untempered word of NumPy's state is it; then a double is drawn. */
static uint64_t next_seed(struct clair_mt *mt)
{
	uint64_t seed = mt->state[mt->next >= CLAIR_MT_SIZE ? 0 : mt->next];

	clair_np_double(mt);
	return seed;
}

static void check_parts(const json_t *parts, uint64_t seed, uint32_t n)
{
	static const char *const names[] = { "train", "test" };
	char spec[64];

	for (size_t k = 0; k < 2; k++) {
		snprintf(spec, sizeof spec, "hf:%" PRIu64 ":0.2:%s", seed, names[k]);
		check_split(spec, n, json_object_get(parts, names[k]), NULL);
	}
}

Test(vectors_more, splits_without_a_seed)
{
	json_t *root = vectors_load("seeds"), *c = NULL;
	size_t i = 0;

	cr_assert_gt(json_array_size(json_object_get(root, "unseeded")), 3);
	json_array_foreach(json_object_get(root, "unseeded"), i, c) {
		uint32_t n = (uint32_t)vectors_u64(c, "n");
		autofree uint32_t *order = malloc(n * sizeof *order);
		struct clair_pcg64 g;
		struct clair_mt mt;

		clair_mt_seed(&mt, (uint32_t)vectors_u64(c, "numpy_seed"));
		check_parts(json_object_get(c, "first"), next_seed(&mt), n);
		check_parts(json_object_get(c, "second"), next_seed(&mt), n);
		clair_pcg64_seed(&g, next_seed(&mt));
		clair_pcg64_permutation(&g, n, order);
		vectors_same(json_object_get(c, "shuffle_third"), order, n, false, "shuffle");
		for (unsigned k = 0; k < 5; k++)
			clair_np_double(&mt);
		check_parts(json_object_get(c, "after_5_more_doubles"), next_seed(&mt), n);
	}
	json_decref(root);
}

/* A worker without an init function: Python's generator has the base seed and its number, torch's
 * the low word of that, NumPy's four words that are made of both. */
Test(vectors_more, workers_of_torch)
{
	json_t *root = vectors_load("seeds"), *c = NULL;
	size_t i = 0;

	cr_assert_eq(json_array_size(json_object_get(root, "worker_seeds")), 12);
	json_array_foreach(json_object_get(root, "worker_seeds"), i, c) {
		uint64_t worker = vectors_u64(c, "worker");
		uint32_t words[4], key[4];
		struct clair_np_seed_sequence ss;
		struct clair_mt mt;

		clair_torch_seed(&mt, vectors_u64(c, "torch_manual_seed"));
		uint64_t base = clair_mt_u64(&mt) & INT64_MAX, seed = base + worker;
		cr_assert_eq(seed, strtoull(vectors_text(c, "worker_seed"), NULL, 10));
		clair_py_seed(&mt, seed);
		cr_expect_eq(clair_mt_u32(&mt), vectors_u64(c, "python_u32"));
		clair_torch_seed(&mt, seed);
		cr_expect_eq(clair_mt_u32(&mt) % 1000000,
			     vectors_u64(c, "torch_random_1000000"));
		words[0] = (uint32_t)worker;
		words[1] = (uint32_t)base;
		words[2] = (uint32_t)(base >> 32);
		words[3] = 0;
		clair_np_seed_sequence(&ss, words, 4, NULL, 0);
		clair_np_seed_state(&ss, key, 4);
		clair_mt_seed_array(&mt, key, 4);
		cr_expect_eq(clair_mt_u32(&mt), vectors_u64(c, "numpy_u32"));
	}
	json_decref(root);
}

static void check_mmengine(const json_t *c, const char *sampler, const char *key, uint64_t seed,
			   uint64_t epoch)
{
	struct clair_words words = { 0 };
	struct clair_order_params params = { .n = 20, .world = 1, .words = &words };
	struct clair_indices order = { 0 }, all = { 0 };
	struct clair_sampler *s = NULL;
	char text[24], *error = NULL;
	bool endless = epoch == UINT64_MAX;
	const json_t *want = json_object_get(c, key);

	snprintf(text, sizeof text, "%" PRIu64, seed);
	clair_words_set(&words, "seed", text);
	cr_assert_eq(clair_sampler_new(sampler, &params, NULL, NULL, &s, &error), 0);
	for (uint64_t e = endless ? 0 : epoch; e <= (endless ? 2 : epoch); e++) {
		cr_assert_eq(clair_sampler_epoch(s, e, 0, &order), 0);
		for (size_t k = 0; k < order.count && all.count < json_array_size(want); k++)
			clair_indices_append(&all, order.at[k]);
	}
	vectors_same(want, all.at, all.count, false, key);
	clair_sampler_free(s);
	clair_indices_finish(&order);
	clair_indices_finish(&all);
	clair_words_finish(&words);
}

/* Without a seed it is drawn from NumPy's global generator. */
Test(vectors_more, seeds_of_mmengine)
{
	json_t *root = vectors_load("seeds"), *c = NULL, *v = NULL;
	size_t i = 0, k = 0;
	struct clair_mt mt;

	cr_assert_eq(json_array_size(json_object_get(root, "mmengine")), 5);
	json_array_foreach(json_object_get(root, "mmengine"), i, c) {
		uint64_t first = 0;

		clair_mt_seed(&mt, (uint32_t)vectors_u64(c, "numpy_seed"));
		json_array_foreach(json_object_get(c, "sync_random_seed"), k, v) {
			uint64_t seed = clair_mt_u32(&mt) & INT32_MAX;
			cr_assert_eq(seed, (uint64_t)json_integer_value(v));
			first = k ? first : seed;
		}
		check_mmengine(c, "mmengine", "default_20_epoch0", first, 0);
		check_mmengine(c, "mmengine", "default_20_epoch1", first, 1);
		check_mmengine(c, "mmengine-infinite", "infinite_20_first45", first, UINT64_MAX);
	}
	json_array_foreach(json_object_get(root, "mmengine_workers"), i, c) {
		uint64_t seed = vectors_u64(c, "workers") * vectors_u64(c, "rank") +
				vectors_u64(c, "worker") + vectors_u64(c, "seed");
		cr_expect_eq(seed, vectors_u64(c, "seed_of_worker"));
		clair_py_seed(&mt, seed);
		cr_expect_eq(clair_mt_u32(&mt), vectors_u64(c, "python_random"));
		clair_mt_seed(&mt, (uint32_t)seed);
		cr_expect_eq(clair_mt_u32(&mt), vectors_u64(c, "numpy_u32"));
	}
	json_decref(root);
}

/* torch.randint is what a sampler with replacement draws: from 2^28 on (before torch 2.7: 2^32)
 * with two words. */
Test(vectors_more, wide_ranges_of_torch)
{
	json_t *root = vectors_load("seeds"), *c = NULL;
	size_t i = 0, checked = 0;

	json_array_foreach(json_object_get(root, "randint"), i, c) {
		struct clair_words words = { 0 };
		struct clair_order_params params = { .world = 1, .words = &words };
		struct clair_indices order = { 0 };
		struct clair_sampler *s = NULL;
		char *error = NULL;

		if (vectors_u64(c, "high") > UINT32_MAX)
			continue; /* no dataset has so many */
		params.n = (uint32_t)vectors_u64(c, "high");
		clair_words_set(&words, "seed", vectors_text(c, "seed"));
		clair_words_set(&words, "base", "0");
		clair_words_set(&words, "replacement", "1");
		clair_words_set(&words, "num_samples", "8");
		clair_words_set(&words, "version",
				vectors_u64(c, "switch_log2") == 28 ? "2.7" : "2.6");
		cr_assert_eq(clair_sampler_new("torch-random", &params, NULL, NULL, &s, &error), 0,
			     "%s", error ? error : "");
		cr_assert_eq(clair_sampler_epoch(s, 0, 0, &order), 0);
		vectors_same(json_object_get(c, "values"), order.at, order.count, false,
			     vectors_text(c, "high"));
		checked++;
		clair_sampler_free(s);
		clair_indices_finish(&order);
		clair_words_finish(&words);
	}
	cr_expect_eq(checked, 54);
	json_decref(root);
}

/* random_() on int64. */
Test(vectors_more, numbers_of_63_bits)
{
	json_t *root = vectors_load("seeds"), *c = NULL, *v = NULL;
	size_t i = 0, k = 0;
	struct clair_mt mt;

	cr_assert_eq(json_array_size(json_object_get(root, "int64")), 7);
	json_array_foreach(json_object_get(root, "int64"), i, c) {
		clair_torch_seed(&mt, strtoull(vectors_text(c, "seed"), NULL, 10));
		json_array_foreach(json_object_get(c, "random_int64"), k, v)
			cr_expect_eq(clair_mt_u64(&mt) & INT64_MAX,
				     (uint64_t)json_integer_value(v), "%zu, %zu", i, k);
	}
	json_decref(root);
}

/* --- torchvision's datasets ------------------------------------------------------------------ */

static void make_path(int top, const char *path)
{
	autofree char *folder = strdup(path);

	for (char *slash = folder; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		cr_assert(mkdirat(top, folder, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	autoclose int fd = openat(top, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	cr_assert(fd >= 0, "%s", path);
}

/* The order as a file, for what a dataset of its own list reads. */
static void write_order(const json_t *order, const char *file)
{
	autofclose FILE *f = fopen(file, "we");

	cr_assert_not_null(f);
	for (size_t i = 0; i < json_array_size(order); i++)
		fprintf(f, "%s\n", json_string_value(json_array_get(order, i)));
}

static void check_dataset(const json_t *c, const struct clair_catalog *catalog, const char *top)
{
	const json_t *order = json_object_get(c, "order"), *index = json_object_get(c, "index");
	const char *name = vectors_text(c, "name"), *folder = vectors_text(c, "folder");
	uint32_t id = *folder ? clair_catalog_find(catalog, folder) : 0, count = 0;
	autofree uint32_t *ids = NULL;
	char list[128], *error = NULL;

	snprintf(list, sizeof list, "list:%s/order", top);
	write_order(order, list + 5);
	int r = clair_index_make(catalog, id, index ? json_string_value(index) : list, &ids,
				 &count, &error);
	cr_assert_eq(r, 0, "%s: %s", name, error ? error : "");
	cr_assert_eq(count, json_array_size(order), "%s: %u", name, count);
	for (uint32_t i = 0; i < count; i++) {
		char path[256];

		clair_catalog_path(catalog, ids[i], path, sizeof path);
		cr_assert_str_eq(path, json_string_value(json_array_get(order, i)), "%s", name);
	}
}

Test(vectors_more, datasets_of_torchvision)
{
	json_t *root = vectors_load("torchvision_datasets"), *c = NULL, *v = NULL;
	char top[] = "/tmp/clairfs-datasets-XXXXXX", source[64], command[64];
	struct clair_catalog *catalog = NULL;
	size_t i = 0, k = 0;

	cr_assert(mkdtemp(top));
	snprintf(source, sizeof source, "%s/source", top);
	cr_assert_eq(mkdir(source, 0755), 0);
	autoclose int fd = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_gt(json_array_size(root), 15);
	json_array_foreach(root, i, c)
		json_array_foreach(json_object_get(c, "files"), k, v)
			make_path(fd, json_string_value(v));
	cr_assert_eq(clair_catalog_walk(fd, 1, NULL, NULL, &catalog), 0);
	json_array_foreach(root, i, c)
		check_dataset(c, catalog, top);
	clair_catalog_free(catalog);
	json_decref(root);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}
