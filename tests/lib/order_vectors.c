/* SPDX-License-Identifier: BSD-3-Clause */
#include "order_vectors.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "cleanup.h"
#include "words.h"

json_t *vectors_load(const char *name)
{
	const char *folder = getenv("CLAIR_VECTORS");
	char path[4096];
	json_error_t error;

	cr_assert_not_null(folder, "CLAIR_VECTORS is not set");
	snprintf(path, sizeof path, "%s/%s.json", folder, name);
	json_t *root = json_load_file(path, 0, &error);
	cr_assert_not_null(root, "%s: %s", path, error.text);
	return root;
}

uint64_t vectors_u64(const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	cr_assert(json_is_integer(v) || json_is_boolean(v), "no number %s", key);
	return json_is_boolean(v) ? json_is_true(v) : (uint64_t)json_integer_value(v);
}

uint64_t vectors_u64_or(const json_t *object, const char *key, uint64_t fallback)
{
	const json_t *v = json_object_get(object, key);

	return json_is_null(v) || !v ? fallback : vectors_u64(object, key);
}

const char *vectors_text(const json_t *object, const char *key)
{
	static char texts[8][80];
	static unsigned next;
	const json_t *v = json_object_get(object, key);

	if (json_is_string(v))
		return json_string_value(v);
	cr_assert(json_is_integer(v), "no text %s", key);
	char *text = texts[next++ % 8];
	snprintf(text, sizeof texts[0], "%" PRId64, (int64_t)json_integer_value(v));
	return text;
}

void vectors_same(const json_t *want, const uint32_t *got, size_t count, bool prefix,
		  const char *what)
{
	size_t n = json_array_size(want);

	cr_assert(json_is_array(want), "%s: no vector", what);
	cr_assert(prefix ? n <= count : n == count, "%s: %zu indices, not %zu", what, count, n);
	for (size_t i = 0; i < n; i++) {
		uint64_t v = (uint64_t)json_integer_value(json_array_get(want, i));

		cr_assert(v == got[i], "%s: [%zu] is %u, not %" PRIu64, what, i, got[i], v);
	}
}

void vectors_hashed(const json_t *item, const uint32_t *got, size_t count, const char *what)
{
	const json_t *head = json_object_get(item, "head");
	char hash[20];

	vectors_same(head ? head : json_object_get(item, "first"), got, count, true, what);
	snprintf(hash, sizeof hash, "%016" PRIx64,
		 (uint64_t)XXH3_64bits(got, count * sizeof *got));
	cr_assert_str_eq(hash, vectors_text(item, "xxh3_64"), "%s", what);
}

uint64_t vectors_fnv(uint64_t h, const uint32_t *items, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ items[i]) * 1099511628211u;
	return h;
}

/* A list of numbers as a file, one a line; NAME becomes its path. */
static void write_lines(const json_t *list, char name[])
{
	int fd = mkstemp(name);
	autofclose FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	const json_t *v = NULL;
	size_t i = 0;

	cr_assert_not_null(f);
	json_array_foreach(list, i, v) {
		if (json_is_real(v))
			fprintf(f, "%.17g\n", json_real_value(v));
		else if (json_is_string(v))
			fprintf(f, "%s\n", json_string_value(v));
		else
			fprintf(f, "%" JSON_INTEGER_FORMAT "\n", json_integer_value(v));
	}
}

static void add_words(struct clair_words *words, const json_t *c)
{
	const char *key = NULL;
	json_t *v = NULL;

	json_object_foreach(json_object_get(c, "words"), key, v)
		clair_words_set(words, key, vectors_text(json_object_get(c, "words"), key));
	json_object_foreach(json_object_get(c, "files"), key, v) {
		char name[] = "/tmp/clair-vectors-XXXXXX";

		write_lines(v, name);
		clair_words_set(words, key, name);
	}
}

static struct clair_sampler *sampler_of(const json_t *c)
{
	const json_t *list = json_object_get(c, "sizes");
	struct clair_order_params params = { .n = (uint32_t)vectors_u64(c, "n"),
					     .world = (uint32_t)vectors_u64_or(c, "world", 1) };
	autofree uint64_t *sizes = calloc(json_array_size(list) + 1, sizeof *sizes);
	struct clair_words words = { 0 };
	struct clair_sampler *sampler = NULL;
	char *error = NULL;

	for (size_t i = 0; i < json_array_size(list); i++)
		sizes[i] = (uint64_t)json_integer_value(json_array_get(list, i));
	add_words(&words, c);
	params.words = &words;
	params.sizes = list ? sizes : NULL;
	int r = clair_sampler_new(vectors_text(c, "sampler"), &params, NULL, NULL, &sampler,
				  &error);
	cr_assert_eq(r, 0, "%s: %d %s", vectors_text(c, "sampler"), r, error ? error : "");
	const char *key = NULL;
	json_t *v = NULL;
	json_object_foreach(json_object_get(c, "files"), key, v)
		unlink(clair_words_get(&words, key));
	clair_words_finish(&words);
	return sampler;
}

static void check_one(struct clair_sampler *sampler, const json_t *w, const char *what)
{
	const json_t *order = json_object_get(w, "order");
	struct clair_indices got = { 0 };
	uint64_t epoch = vectors_u64_or(w, "epoch", 0), rank = vectors_u64_or(w, "rank", 0);
	char text[400], hash[20];

	snprintf(text, sizeof text, "%s epoch %" PRIu64 " rank %" PRIu64, what, epoch, rank);
	int r = clair_sampler_epoch(sampler, epoch, (uint32_t)rank, &got);
	cr_assert_eq(r, 0, "%s: %d", text, r);
	if (order) {
		vectors_same(order, got.at, got.count, json_is_true(json_object_get(w, "prefix")),
			     text);
	} else {
		cr_assert_eq(got.count, vectors_u64(w, "len"), "%s", text);
		snprintf(hash, sizeof hash, "%016" PRIx64,
			 vectors_fnv(1469598103934665603u, got.at, got.count));
		cr_assert_str_eq(hash, vectors_text(w, "fnv"), "%s", text);
	}
	clair_indices_finish(&got);
}

void vectors_orders(const char *file)
{
	json_t *root = vectors_load(file), *c = NULL, *w = NULL;
	size_t i = 0, k = 0;

	cr_assert(json_array_size(root) > 0, "%s is empty", file);
	json_array_foreach(root, i, c) {
		struct clair_sampler *sampler = sampler_of(c);
		char *words = json_dumps(json_object_get(c, "words"), JSON_COMPACT);
		char what[300];

		snprintf(what, sizeof what, "%s[%zu] n=%u %s", file, i,
			 (unsigned)vectors_u64(c, "n"), words);
		json_array_foreach(json_object_get(c, "want"), k, w)
			check_one(sampler, w, what);
		free(words);
		clair_sampler_free(sampler);
	}
	json_decref(root);
}
