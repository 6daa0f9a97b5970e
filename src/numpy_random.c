/* SPDX-License-Identifier: BSD-3-Clause */
#include "numpy_random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

void clair_iota(uint32_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint32_t)i;
}

static uint32_t mask_of(uint32_t max)
{
	return max ? UINT32_MAX >> __builtin_clz(max) : 0;
}

static void swap(uint32_t *items, size_t i, size_t j)
{
	uint32_t t = items[i];

	items[i] = items[j];
	items[j] = t;
}

uint32_t clair_np_interval(struct clair_mt *mt, uint32_t max)
{
	uint32_t mask = mask_of(max), v = 0;

	if (max == 0)
		return 0;
	do
		v = clair_mt_u32(mt) & mask;
	while (v > max);
	return v;
}

void clair_np_shuffle(struct clair_mt *mt, uint32_t *items, size_t n)
{
	for (size_t i = n; i-- > 1;)
		swap(items, i, clair_np_interval(mt, (uint32_t)i));
}

void clair_np_permutation(struct clair_mt *mt, uint32_t n, uint32_t *out)
{
	clair_iota(out, n);
	clair_np_shuffle(mt, out, n);
}

double clair_np_double(struct clair_mt *mt)
{
	uint32_t a = clair_mt_u32(mt) >> 5, b = clair_mt_u32(mt) >> 6;

	return (a * 67108864.0 + b) / 9007199254740992.0;
}

uint32_t clair_np_randint(struct clair_mt *mt, uint32_t low, uint64_t high)
{
	return low + clair_np_interval(mt, (uint32_t)(high - 1 - low));
}

/* ---- SeedSequence */

static uint32_t hash_mix(uint32_t v, uint32_t *hash)
{
	v ^= *hash;
	*hash *= 0x931e8875u;
	v *= *hash;
	return v ^ v >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
	uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;

	return r ^ r >> 16;
}

/* The I-th word of entropy and spawn key joined; before a spawn key the entropy is filled
 * up to the pool with zeros. */
static uint32_t entropy_at(const uint32_t *entropy, size_t length, size_t padded,
			   const uint32_t *spawn, size_t spawn_length, size_t i)
{
	if (i < length)
		return entropy[i];
	if (i < padded || i - padded >= spawn_length)
		return 0;
	return spawn[i - padded];
}

void clair_np_seed_sequence(struct clair_np_seed_sequence *ss, const uint32_t *entropy,
			    size_t length, const uint32_t *spawn, size_t spawn_length)
{
	size_t padded = spawn_length && length < 4 ? 4 : length;
	uint32_t hash = 0x43b0d7e5u;

	for (size_t i = 0; i < 4; i++)
		ss->pool[i] = hash_mix(entropy_at(entropy, length, padded, spawn,
						  spawn_length, i), &hash);
	for (size_t s = 0; s < 4; s++)
		for (size_t d = 0; d < 4; d++)
			if (s != d)
				ss->pool[d] = mix(ss->pool[d], hash_mix(ss->pool[s], &hash));
	for (size_t s = 4; s < padded + spawn_length; s++)
		for (size_t d = 0; d < 4; d++)
			ss->pool[d] = mix(ss->pool[d],
					  hash_mix(entropy_at(entropy, length, padded, spawn,
							      spawn_length, s), &hash));
}

void clair_np_seed_state(const struct clair_np_seed_sequence *ss, uint32_t *out, size_t n)
{
	uint32_t hash = 0x8b51f9ddu;

	for (size_t i = 0; i < n; i++) {
		uint32_t v = ss->pool[i % 4] ^ hash;

		hash *= 0x58f38dedu;
		v *= hash;
		out[i] = v ^ v >> 16;
	}
}

size_t clair_np_words(uint64_t value, uint32_t *out)
{
	out[0] = (uint32_t)value;
	if (value >> 32 == 0)
		return 1;
	out[1] = (uint32_t)(value >> 32);
	return 2;
}

/* ---- PCG64 */

static const unsigned __int128 multiplier =
	(unsigned __int128)0x2360ed051fc65da4u << 64 | 0x4385df649fccf645u;

static void step(struct clair_pcg64 *g)
{
	g->state = g->state * multiplier + g->inc;
}

void clair_pcg64_seed_sequence(struct clair_pcg64 *g,
			       const struct clair_np_seed_sequence *ss)
{
	uint32_t w[8];
	uint64_t v[4];

	clair_np_seed_state(ss, w, 8);
	for (int i = 0; i < 4; i++)
		v[i] = w[2 * i] | (uint64_t)w[2 * i + 1] << 32;
	*g = (struct clair_pcg64){ 0 };
	g->inc = ((unsigned __int128)v[2] << 64 | v[3]) << 1 | 1;
	step(g);
	g->state += (unsigned __int128)v[0] << 64 | v[1];
	step(g);
}

void clair_pcg64_seed(struct clair_pcg64 *g, uint64_t seed)
{
	struct clair_np_seed_sequence ss;
	uint32_t words[2];
	size_t n = clair_np_words(seed, words);

	clair_np_seed_sequence(&ss, words, n, NULL, 0);
	clair_pcg64_seed_sequence(g, &ss);
}

uint64_t clair_pcg64_u64(struct clair_pcg64 *g)
{
	step(g);
	uint64_t x = (uint64_t)(g->state >> 64) ^ (uint64_t)g->state;
	unsigned r = (unsigned)(g->state >> 122);

	return x >> r | x << (-r & 63);
}

uint32_t clair_pcg64_u32(struct clair_pcg64 *g)
{
	if (g->half) {
		g->half = false;
		return g->high;
	}
	uint64_t v = clair_pcg64_u64(g);
	g->half = true;
	g->high = (uint32_t)(v >> 32);
	return (uint32_t)v;
}

double clair_pcg64_double(struct clair_pcg64 *g)
{
	return (double)(clair_pcg64_u64(g) >> 11) * (1.0 / 9007199254740992.0);
}

uint32_t clair_pcg64_interval(struct clair_pcg64 *g, uint32_t max)
{
	uint32_t mask = mask_of(max), v = 0;

	if (max == 0)
		return 0;
	do
		v = clair_pcg64_u32(g) & mask;
	while (v > max);
	return v;
}

void clair_pcg64_shuffle(struct clair_pcg64 *g, uint32_t *items, size_t n)
{
	for (size_t i = n; i-- > 1;)
		swap(items, i, clair_pcg64_interval(g, (uint32_t)i));
}

void clair_pcg64_permutation(struct clair_pcg64 *g, uint32_t n, uint32_t *out)
{
	clair_iota(out, n);
	clair_pcg64_shuffle(g, out, n);
}

static uint64_t bounded32(struct clair_pcg64 *g, uint32_t range)
{
	if (range == UINT32_MAX)
		return clair_pcg64_u32(g);
	uint32_t n = range + 1;
	uint64_t m = (uint64_t)clair_pcg64_u32(g) * n;
	if ((uint32_t)m < n) {
		uint32_t low = (UINT32_MAX - range) % n;

		while ((uint32_t)m < low)
			m = (uint64_t)clair_pcg64_u32(g) * n;
	}
	return m >> 32;
}

uint64_t clair_pcg64_bounded(struct clair_pcg64 *g, uint64_t range)
{
	if (range == 0)
		return 0;
	if (range <= UINT32_MAX)
		return bounded32(g, (uint32_t)range);
	if (range == UINT64_MAX)
		return clair_pcg64_u64(g);
	uint64_t n = range + 1;
	unsigned __int128 m = (unsigned __int128)clair_pcg64_u64(g) * n;
	if ((uint64_t)m < n) {
		uint64_t low = (UINT64_MAX - range) % n;

		while ((uint64_t)m < low)
			m = (unsigned __int128)clair_pcg64_u64(g) * n;
	}
	return (uint64_t)(m >> 64);
}

/* Like shuffle, but with Lemire's draws; positions below FIRST stay. */
static void shuffle_lemire(struct clair_pcg64 *g, uint32_t *items, size_t n, size_t first)
{
	for (size_t i = n; i-- > first;)
		swap(items, i, clair_pcg64_bounded(g, i));
}

/* Many of many: the tail of a shuffled range. */
static int choice_tail(struct clair_pcg64 *g, uint32_t n, uint32_t k, uint32_t *out)
{
	autofree uint32_t *all = malloc((size_t)n * sizeof *all);

	if (!all)
		return -ENOMEM;
	clair_iota(all, n);
	shuffle_lemire(g, all, n, n - k > 1 ? n - k : 1);
	memcpy(out, all + (n - k), (size_t)k * sizeof *out);
	return 0;
}

int clair_pcg64_choice(struct clair_pcg64 *g, uint32_t n, uint32_t k, bool shuffle,
		       uint32_t *out)
{
	if (n > 10000 && k > n / (shuffle ? 50 : 20))
		return choice_tail(g, n, k, out);
	/* Floyd's method */
	autofree uint8_t *seen = calloc((size_t)n / 8 + 1, 1);
	if (!seen)
		return -ENOMEM;
	for (uint32_t i = 0; i < k; i++) {
		uint32_t j = n - k + i, v = (uint32_t)clair_pcg64_bounded(g, j);

		if (seen[v / 8] >> v % 8 & 1)
			v = j;
		seen[v / 8] |= (uint8_t)(1u << v % 8);
		out[i] = v;
	}
	if (shuffle)
		shuffle_lemire(g, out, k, 1);
	return 0;
}
