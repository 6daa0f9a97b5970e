/* SPDX-License-Identifier: BSD-3-Clause */
#include "cxx_shuffle.h"

#define MINSTD_MODULUS 2147483647u

static void mt64_seed(struct clair_mt64 *g, uint64_t seed)
{
	g->state[0] = seed;
	for (unsigned i = 1; i < 312; i++) {
		uint64_t x = g->state[i - 1];

		g->state[i] = 6364136223846793005u * (x ^ x >> 62) + i;
	}
	g->next = 312;
}

static uint64_t mt64_draw(struct clair_mt64 *g)
{
	if (g->next >= 312) {
		for (unsigned k = 0; k < 312; k++) {
			uint64_t y = (g->state[k] & 0xffffffff80000000u) |
				     (g->state[(k + 1) % 312] & 0x7fffffffu);

			g->state[k] = g->state[(k + 156) % 312] ^ y >> 1 ^
				      (y & 1 ? 0xb5026f5aa96619e9u : 0);
		}
		g->next = 0;
	}
	uint64_t y = g->state[g->next++];
	y ^= y >> 29 & 0x5555555555555555u;
	y ^= y << 17 & 0x71d67fffeda60000u;
	y ^= y << 37 & 0xfff7eee000000000u;
	return y ^ y >> 43;
}

void clair_cxx_seed(struct clair_cxx_engine *e, enum clair_cxx_engine_kind kind,
		    uint64_t seed, int gcc)
{
	e->kind = kind;
	e->gcc = gcc;
	switch (kind) {
	case CLAIR_CXX_MT19937:
		clair_mt_seed(&e->mt, (uint32_t)seed);
		break;
	case CLAIR_CXX_MT19937_64:
		mt64_seed(&e->mt64, seed);
		break;
	case CLAIR_CXX_MINSTD0:
		e->minstd = (uint32_t)(seed % MINSTD_MODULUS);
		if (e->minstd == 0)
			e->minstd = 1;
		break;
	}
}

/* The engine's output less its minimum. */
static uint64_t draw(struct clair_cxx_engine *e)
{
	switch (e->kind) {
	case CLAIR_CXX_MT19937:
		return clair_mt_u32(&e->mt);
	case CLAIR_CXX_MT19937_64:
		return mt64_draw(&e->mt64);
	case CLAIR_CXX_MINSTD0:
		e->minstd = (uint32_t)((uint64_t)e->minstd * 16807 % MINSTD_MODULUS);
		return e->minstd - 1;
	}
	return 0;
}

static uint64_t range_of(const struct clair_cxx_engine *e)
{
	switch (e->kind) {
	case CLAIR_CXX_MT19937:
		return UINT32_MAX;
	case CLAIR_CXX_MT19937_64:
		return UINT64_MAX;
	case CLAIR_CXX_MINSTD0:
		return MINSTD_MODULUS - 2;
	}
	return 0;
}

static uint64_t lemire32(struct clair_cxx_engine *e, uint32_t n)
{
	uint64_t p = draw(e) * n;

	if ((uint32_t)p < n) {
		uint32_t low = -n % n;

		while ((uint32_t)p < low)
			p = draw(e) * n;
	}
	return p >> 32;
}

static uint64_t lemire64(struct clair_cxx_engine *e, uint64_t n)
{
	unsigned __int128 p = (unsigned __int128)draw(e) * n;

	if ((uint64_t)p < n) {
		uint64_t low = -n % n;

		while ((uint64_t)p < low)
			p = (unsigned __int128)draw(e) * n;
	}
	return (uint64_t)(p >> 64);
}

/* uniform_int_distribution<size_t>(0, MAX), MAX below the engine's range. */
static uint64_t uniform(struct clair_cxx_engine *e, uint64_t max)
{
	uint64_t range = range_of(e), n = max + 1;

	if (max >= range)
		return draw(e);
	if (e->gcc >= 11 && e->kind == CLAIR_CXX_MT19937)
		return lemire32(e, (uint32_t)n);
	if (e->gcc >= 11 && e->kind == CLAIR_CXX_MT19937_64)
		return lemire64(e, n);
	uint64_t scale = range / n, past = n * scale, v = 0;
	do
		v = draw(e);
	while (v >= past);
	return v / scale;
}

static void swap(uint32_t *items, size_t i, size_t j)
{
	uint32_t t = items[i];

	items[i] = items[j];
	items[j] = t;
}

void clair_cxx_shuffle(struct clair_cxx_engine *e, uint32_t *items, size_t n)
{
	size_t i = 1;

	if (n == 0)
		return;
	if (range_of(e) / n < n) {
		for (; i < n; i++)
			swap(items, i, uniform(e, i));
		return;
	}
	/* two positions a draw; an even count has one left over, which comes first */
	if (n % 2 == 0) {
		swap(items, 1, uniform(e, 1));
		i = 2;
	}
	for (; i < n; i += 2) {
		uint64_t v = uniform(e, (uint64_t)(i + 1) * (i + 2) - 1);

		swap(items, i, v / (i + 2));
		swap(items, i + 1, v % (i + 2));
	}
}

static uint32_t fold(uint32_t x)
{
	return x ^ x >> 27;
}

void clair_cxx_seed_seq(const uint32_t *words, size_t count, uint32_t *out, size_t n)
{
	size_t t = n >= 623 ? 11 : n >= 68 ? 7 : n >= 39 ? 5 : n >= 7 ? 3 : (n - 1) / 2;
	size_t p = (n - t) / 2, q = p + t, m = count + 1 > n ? count + 1 : n;

	for (size_t k = 0; k < n; k++)
		out[k] = 0x8b8b8b8bu;
	for (size_t k = 0; k < m; k++) {
		uint32_t before = out[(k + n - 1) % n];
		uint32_t r = 1664525u * fold(out[k % n] ^ out[(k + p) % n] ^ before);
		uint32_t r2 = r + (uint32_t)(k == 0 ? count : k % n);

		if (k > 0 && k <= count)
			r2 += words[k - 1];
		out[(k + p) % n] += r;
		out[(k + q) % n] += r2;
		out[k % n] = r2;
	}
	for (size_t k = m; k < m + n; k++) {
		uint32_t before = out[(k + n - 1) % n];
		uint32_t r = 1566083941u * fold(out[k % n] + out[(k + p) % n] + before);
		uint32_t r2 = r - (uint32_t)(k % n);

		out[(k + p) % n] ^= r;
		out[(k + q) % n] ^= r2;
		out[k % n] = r2;
	}
}
