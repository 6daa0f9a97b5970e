/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <stdlib.h>

#include "words.h"

Test(words, set_get_unset)
{
	struct clair_words w = { 0 };

	cr_assert_null(clair_words_get(&w, "seed"));
	clair_words_set(&w, "seed", "1");
	clair_words_set(&w, "world", "4");
	clair_words_set(&w, "seed", "2");
	cr_assert_eq(w.count, 2);
	cr_assert_str_eq(clair_words_get(&w, "seed"), "2");
	clair_words_unset(&w, "seed");
	cr_assert_null(clair_words_get(&w, "seed"));
	cr_assert_str_eq(clair_words_get(&w, "world"), "4");
	clair_words_finish(&w);
}

static uint64_t u64_of(const char *text, int expected)
{
	struct clair_words w = { 0 };
	uint64_t v = 77;
	char *error = NULL;

	clair_words_set(&w, "k", text);
	cr_assert_eq(clair_words_u64(&w, "k", 5, &v, &error), expected, "%s", text);
	cr_assert_eq(!error, expected == 0, "%s", text);
	free(error);
	clair_words_finish(&w);
	return v;
}

Test(words, integers)
{
	cr_assert_eq(u64_of("42", 0), 42);
	cr_assert_eq(u64_of("010", 0), 10);
	cr_assert_eq(u64_of("0x10", 0), 16);
	cr_assert_eq(u64_of("-1", 0), UINT64_MAX);
	cr_assert_eq(u64_of("18446744073709551615", 0), UINT64_MAX);
	cr_assert_eq(u64_of("18446744073709551616", -22), 77);
	cr_assert_eq(u64_of("", -22), 77);
	cr_assert_eq(u64_of(" 1", -22), 77);
	cr_assert_eq(u64_of("1x", -22), 77);
}

Test(words, bools_doubles_bounds)
{
	struct clair_words w = { 0 };
	char *error = NULL;
	bool b = false;
	double d = 0;
	uint64_t v = 9;

	clair_words_set(&w, "a", "yes");
	clair_words_set(&w, "b", "2");
	clair_words_set(&w, "c", "0.25");
	clair_words_set(&w, "d", "-3");
	cr_assert_eq(clair_words_bool(&w, "a", false, &b, &error), 0);
	cr_assert(b);
	cr_assert_eq(clair_words_bool(&w, "b", false, &b, &error), -22);
	free(error);
	cr_assert_eq(clair_words_double(&w, "c", 0, &d, &error), 0);
	cr_assert_float_eq(d, 0.25, 1e-12);
	cr_assert_eq(clair_words_uint(&w, "d", 0, 10, &v, &error), -22);
	free(error);
	cr_assert_eq(clair_words_uint(&w, "b", 0, 1, &v, &error), -22);
	free(error);
	cr_assert_eq(v, 9);
	clair_words_finish(&w);
}
