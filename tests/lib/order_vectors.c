/* SPDX-License-Identifier: BSD-3-Clause */
#include "order_vectors.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

struct clair_sampler *vectors_sampler(const char *name, uint32_t n, uint32_t world,
				      const uint64_t *sizes, const char *format, ...)
{
	struct clair_words words = { 0 };
	struct clair_sampler *sampler = NULL;
	char text[1024], *error = NULL, *at = NULL;
	va_list list;

	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	for (char *w = strtok_r(text, " ", &at); w; w = strtok_r(NULL, " ", &at)) {
		char *value = strchr(w, '=');

		cr_assert_not_null(value);
		*value++ = '\0';
		clair_words_set(&words, w, value);
	}
	struct clair_order_params params = { n, world, &words, sizes };
	int r = clair_sampler_new(name, &params, NULL, NULL, &sampler, &error);
	cr_assert_eq(r, 0, "%s: %d %s", name, r, error ? error : "");
	clair_words_finish(&words);
	return sampler;
}

void vectors_epoch(struct clair_sampler *sampler, uint64_t epoch, uint32_t rank,
		   const json_t *want, const char *what)
{
	struct clair_indices got = { 0 };
	char text[200];

	snprintf(text, sizeof text, "%s epoch %" PRIu64 " rank %u", what, epoch, rank);
	int r = clair_sampler_epoch(sampler, epoch, rank, &got);
	cr_assert_eq(r, 0, "%s: %d", text, r);
	vectors_same(want, got.at, got.count, false, text);
	clair_indices_finish(&got);
}
