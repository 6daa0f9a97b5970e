/* SPDX-License-Identifier: BSD-3-Clause */
#include "python_random.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "sha512.h"

void clair_py_seed(struct clair_mt *mt, uint64_t seed)
{
	uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };

	clair_mt_seed_array(mt, key, key[1] ? 2 : 1);
}

int clair_py_int_words(const char *text, uint32_t **words, size_t *count)
{
	text += *text == '-' || *text == '+';
	size_t digits = strlen(text), used = 0;
	if (digits == 0 || strspn(text, "0123456789") != digits)
		return -EINVAL;
	uint32_t *key = calloc(digits / 9 + 2, sizeof *key);
	if (!key)
		return -ENOMEM;
	for (; *text; text++) {
		uint64_t carry = (uint64_t)(*text - '0');

		for (size_t i = 0; i < used; i++) {
			carry += (uint64_t)key[i] * 10;
			key[i] = (uint32_t)carry;
			carry >>= 32;
		}
		if (carry)
			key[used++] = (uint32_t)carry;
	}
	*words = key;
	*count = used ? used : 1;
	return 0;
}

int clair_py_seed_decimal(struct clair_mt *mt, const char *text)
{
	autofree uint32_t *key = NULL;
	size_t count = 0;
	int r = clair_py_int_words(text, &key, &count);

	if (r == 0)
		clair_mt_seed_array(mt, key, count);
	return r;
}

/* The text and its SHA-512 as one big-endian integer. */
int clair_py_seed_str(struct clair_mt *mt, const char *text)
{
	size_t length = strlen(text), bytes = length + 64, words = (bytes + 3) / 4;
	autofree uint8_t *number = malloc(bytes);
	autofree uint32_t *key = calloc(words, sizeof *key);

	if (!number || !key)
		return -ENOMEM;
	memcpy(number, text, length);
	clair_sha512(text, length, number + length);
	for (size_t i = 0; i < bytes; i++)
		key[i / 4] |= (uint32_t)number[bytes - 1 - i] << 8 * (i % 4);
	while (words > 1 && key[words - 1] == 0)
		words--;
	clair_mt_seed_array(mt, key, words);
	return 0;
}

uint64_t clair_py_getrandbits(struct clair_mt *mt, unsigned k)
{
	if (k == 0)
		return 0;
	if (k <= 32)
		return clair_mt_u32(mt) >> (32 - k);
	uint64_t low = clair_mt_u32(mt);
	return low | (uint64_t)(clair_mt_u32(mt) >> (64 - k)) << 32;
}

uint64_t clair_py_randbelow(struct clair_mt *mt, uint64_t n)
{
	unsigned k = 64 - (unsigned)__builtin_clzll(n);
	uint64_t v = 0;

	do
		v = clair_py_getrandbits(mt, k);
	while (v >= n);
	return v;
}

int64_t clair_py_randint(struct clair_mt *mt, int64_t a, int64_t b)
{
	return a + (int64_t)clair_py_randbelow(mt, (uint64_t)(b - a) + 1);
}

double clair_py_random(struct clair_mt *mt)
{
	uint32_t a = clair_mt_u32(mt) >> 5, b = clair_mt_u32(mt) >> 6;

	return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

static void swap(uint32_t *items, size_t i, size_t j)
{
	uint32_t t = items[i];

	items[i] = items[j];
	items[j] = t;
}

void clair_py_shuffle(struct clair_mt *mt, uint32_t *items, size_t n)
{
	for (size_t i = n; i-- > 1;)
		swap(items, i, clair_py_randbelow(mt, i + 1));
}

void clair_py_shuffle2(struct clair_mt *mt, uint32_t *items, size_t n)
{
	for (size_t i = n; i-- > 1;)
		swap(items, i, (size_t)(clair_py_random(mt) * (double)(i + 1)));
}

/* From here on Python prefers a set of what was taken to a copy of the population. */
static double set_size(uint32_t k)
{
	double size = 21;

	if (k > 5)
		size += pow(4, ceil(log(3.0 * k) / log(4)));
	return size;
}

static int sample_pool(struct clair_mt *mt, uint32_t n, uint32_t k, uint32_t *out)
{
	autofree uint32_t *pool = malloc(((size_t)n + 1) * sizeof *pool);

	if (!pool)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++)
		pool[i] = i;
	for (uint32_t i = 0; i < k; i++) {
		uint32_t j = (uint32_t)clair_py_randbelow(mt, n - i);

		out[i] = pool[j];
		pool[j] = pool[n - i - 1];
	}
	return 0;
}

int clair_py_sample(struct clair_mt *mt, uint32_t n, uint32_t k, uint32_t *out)
{
	if (n <= set_size(k))
		return sample_pool(mt, n, k, out);
	autofree uint8_t *seen = calloc((size_t)n / 8 + 1, 1);
	if (!seen)
		return -ENOMEM;
	for (uint32_t i = 0; i < k; i++) {
		uint32_t j = 0;

		do
			j = (uint32_t)clair_py_randbelow(mt, n);
		while (seen[j / 8] >> j % 8 & 1);
		seen[j / 8] |= (uint8_t)(1u << j % 8);
		out[i] = j;
	}
	return 0;
}
