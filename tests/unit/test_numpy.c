/* SPDX-License-Identifier: BSD-3-Clause */
/* NumPy's, CPython's and libstdc++'s generators against recorded orders. */
#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "cxx_shuffle.h"
#include "numpy_random.h"
#include "order_tf.h"
#include "order_vectors.h"
#include "philox.h"
#include "python_random.h"
#include "sha512.h"

static uint32_t *room(size_t n)
{
	uint32_t *p = calloc(n + 1, sizeof *p);

	cr_assert_not_null(p);
	return p;
}

/* The big seeds are texts of decimal digits. */
static void pcg64_of(struct clair_pcg64 *g, const json_t *c)
{
	autofree uint32_t *words = NULL;
	struct clair_np_seed_sequence ss;
	size_t count = 0;

	cr_assert_eq(clair_py_int_words(vectors_text(c, "seed"), &words, &count), 0);
	clair_np_seed_sequence(&ss, words, count, NULL, 0);
	clair_pcg64_seed_sequence(g, &ss);
}

static void permute_all(const char *file, void (*permute)(const json_t *, uint32_t, uint32_t *))
{
	json_t *root = vectors_load(file), *c = NULL;
	size_t i = 0;

	json_array_foreach(json_object_get(root, "cases"), i, c) {
		uint32_t n = (uint32_t)vectors_u64(c, "n");
		autofree uint32_t *got = room(n);

		permute(c, n, got);
		vectors_same(json_object_get(c, "order"), got, n, false, file);
	}
	json_array_foreach(json_object_get(root, "hashed"), i, c) {
		uint32_t n = (uint32_t)vectors_u64(c, "n");
		autofree uint32_t *got = room(n);

		permute(c, n, got);
		vectors_hashed(c, got, n, file);
	}
	json_decref(root);
}

static void random_state(const json_t *c, uint32_t n, uint32_t *out)
{
	struct clair_mt mt;

	clair_mt_seed(&mt, (uint32_t)vectors_u64(c, "seed"));
	clair_np_permutation(&mt, n, out);
}

static void generator(const json_t *c, uint32_t n, uint32_t *out)
{
	struct clair_pcg64 g;

	pcg64_of(&g, c);
	clair_pcg64_permutation(&g, n, out);
}

static void python_seed(struct clair_mt *mt, const json_t *c)
{
	const char *text = vectors_text(c, "seed");

	if (clair_py_seed_decimal(mt, text) < 0)
		cr_assert_eq(clair_py_seed_str(mt, text), 0);
}

static void python_shuffle(const json_t *c, uint32_t n, uint32_t *out)
{
	struct clair_mt mt;

	python_seed(&mt, c);
	clair_iota(out, n);
	clair_py_shuffle(&mt, out, n);
}

Test(numpy, random_state)
{
	permute_all("numpy_randomstate_permutation", random_state);
}

Test(numpy, generator)
{
	permute_all("numpy_generator_permutation", generator);
}

Test(numpy, generator_choice)
{
	json_t *root = vectors_load("numpy_generator_choice"), *c = NULL;
	size_t i = 0;

	json_array_foreach(json_object_get(root, "cases"), i, c) {
		uint32_t n = (uint32_t)vectors_u64(c, "n"), k = (uint32_t)vectors_u64(c, "k");
		autofree uint32_t *got = room(k);
		struct clair_pcg64 g;

		pcg64_of(&g, c);
		cr_assert_eq(clair_pcg64_choice(&g, n, k, true, got), 0);
		vectors_same(json_object_get(c, "choice"), got, k, true, "choice");
		pcg64_of(&g, c);
		cr_assert_eq(clair_pcg64_choice(&g, n, k, false, got), 0);
		vectors_same(json_object_get(c, "choice_noshuffle"), got, k, true, "unshuffled");
		pcg64_of(&g, c);
		for (uint32_t j = 0; j < k; j++)
			got[j] = (uint32_t)clair_pcg64_bounded(&g, n - 1);
		vectors_same(json_object_get(c, "integers"), got, k, true, "integers");
	}
	json_decref(root);
}

Test(python, shuffle)
{
	permute_all("python_shuffle", python_shuffle);
}

Test(python, sample)
{
	json_t *root = vectors_load("python_sample"), *c = NULL;
	size_t i = 0;

	json_array_foreach(json_object_get(root, "cases"), i, c) {
		uint32_t k = (uint32_t)vectors_u64(c, "k");
		autofree uint32_t *got = room(k);
		struct clair_mt mt;

		python_seed(&mt, c);
		cr_assert_eq(clair_py_sample(&mt, (uint32_t)vectors_u64(c, "n"), k, got), 0);
		vectors_same(json_object_get(c, "sample"), got, k, false, "sample");
	}
	json_decref(root);
}

Test(python, sha512)
{
	static const uint8_t abc[4] = { 0xdd, 0xaf, 0x35, 0xa1 };
	uint8_t digest[64];

	clair_sha512("abc", 3, digest);
	cr_assert_eq(memcmp(digest, abc, sizeof abc), 0);
	char long_text[200];
	memset(long_text, 'a', sizeof long_text);
	clair_sha512(long_text, 112, digest); /* the length does not fit the last block */
	static const uint8_t many[4] = { 0xc0, 0x1d, 0x08, 0x0e };
	cr_assert_eq(memcmp(digest, many, sizeof many), 0, "%02x%02x%02x%02x", digest[0],
		     digest[1], digest[2], digest[3]);
}

static void seed_cxx(struct clair_cxx_engine *e, const json_t *c, int gcc)
{
	const char *name = vectors_text(c, "engine");
	uint64_t seed = vectors_u64(c, "seed");

	if (strcmp(name, "mt19937") == 0) {
		clair_cxx_seed(e, CLAIR_CXX_MT19937, seed, gcc);
	} else if (strcmp(name, "minstd_rand0") == 0) {
		clair_cxx_seed(e, CLAIR_CXX_MINSTD0, (uint64_t)(int32_t)seed, gcc);
	} else {
		uint32_t word = (uint32_t)seed, out[4];

		clair_cxx_seed_seq(&word, 1, out, 4);
		clair_cxx_seed(e, CLAIR_CXX_MINSTD0, out[3], gcc);
	}
}

static void shuffles(const json_t *list, int gcc)
{
	const json_t *c = NULL;
	size_t i = 0;

	json_array_foreach(list, i, c) {
		struct clair_cxx_engine e;
		uint32_t n = (uint32_t)vectors_u64(c, "n");
		autofree uint32_t *got = room(n);
		uint64_t h = 1469598103934665603u;
		char text[20];

		seed_cxx(&e, c, gcc);
		clair_iota(got, n);
		for (int twice = 0; twice < 2; twice++) {
			clair_cxx_shuffle(&e, got, n);
			h = vectors_fnv(h, got, n);
		}
		snprintf(text, sizeof text, "%016llx", (unsigned long long)h);
		cr_assert_str_eq(text, vectors_text(c, "fnv"), "gcc %d, %s, n=%u", gcc,
				 vectors_text(c, "engine"), n);
	}
}

Test(cxx, shuffle)
{
	json_t *root = vectors_load("cxx_shuffle");

	shuffles(json_object_get(root, "gcc12"), 12);
	shuffles(json_object_get(root, "gcc10"), 10);
	json_decref(root);
}

/* Random123's known answers. */
Test(philox, known_answers)
{
	uint32_t ones[4] = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX };
	uint32_t zeros[4] = { 0 }, out[4];

	clair_philox_block(zeros, zeros, out);
	cr_assert_eq(out[0], 0x6627e8d5u);
	clair_philox_block(ones, ones, out);
	cr_assert_eq(out[0], 0x408f276du);

	struct clair_philox a, b;
	clair_philox_seed(&a, 7, 9);
	b = a;
	for (int i = 0; i < 29; i++)
		clair_philox_u32(&a);
	clair_philox_u32(&b);
	clair_philox_skip(&b, 28);
	cr_assert_eq(clair_philox_u32(&a), clair_philox_u32(&b));
}

/* tf.random.set_seed(s): the seeds of ops without one. */
Test(tf, op_seeds)
{
	json_t *root = vectors_load("tf_op_seeds"), *c = NULL, *v = NULL;
	size_t i = 0, k = 0;

	json_array_foreach(root, i, c)
		json_array_foreach(json_object_get(c, "op_seeds"), k, v)
			cr_assert_eq(clair_tf_op_seed((int64_t)vectors_u64(c, "global"), k),
				     (uint64_t)json_integer_value(v));
	json_decref(root);
}

/* Seeds that programs draw for themselves: kohya, unet3d, SeedSequence. */
Test(python, drawn_seeds)
{
	struct clair_np_seed_sequence ss;
	uint32_t key[2] = { 0, 1 }, hashed = 0;
	struct clair_mt mt;

	clair_py_seed(&mt, 0);
	cr_assert_eq(clair_py_randint(&mt, 0, 1ll << 31), 1654615998);
	clair_py_seed(&mt, 1234);
	cr_assert_eq(clair_py_randint(&mt, 0, 1ll << 31), 1892932127);
	clair_py_seed(&mt, 0);
	cr_assert_eq(clair_py_randint(&mt, 0, UINT32_MAX), 3626764237);
	cr_assert_eq(clair_py_randint(&mt, 0, UINT32_MAX), 1806341205);
	clair_np_seed_sequence(&ss, key, 2, NULL, 0);
	clair_np_seed_state(&ss, &hashed, 1);
	cr_assert_eq(hashed, 3964924996u);
}
