/* SPDX-License-Identifier: BSD-3-Clause */
#include "philox.h"

void clair_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
	uint32_t a = counter[0], b = counter[1], c = counter[2], d = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t p = (uint64_t)0xd2511f53u * a, q = (uint64_t)0xcd9e8d57u * c;

		a = (uint32_t)(q >> 32) ^ b ^ k0;
		b = (uint32_t)q;
		c = (uint32_t)(p >> 32) ^ d ^ k1;
		d = (uint32_t)p;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
	out[0] = a;
	out[1] = b;
	out[2] = c;
	out[3] = d;
}

void clair_philox_seed(struct clair_philox *g, uint64_t seed, uint64_t seed2)
{
	*g = (struct clair_philox){
		.key = { (uint32_t)seed, (uint32_t)(seed >> 32) },
		.counter = { 0, 0, (uint32_t)seed2, (uint32_t)(seed2 >> 32) },
		.next = 4,
	};
}

static void advance(struct clair_philox *g, uint64_t blocks)
{
	uint64_t low = g->counter[0] | (uint64_t)g->counter[1] << 32;
	uint64_t high = g->counter[2] | (uint64_t)g->counter[3] << 32;

	low += blocks;
	high += low < blocks;
	g->counter[0] = (uint32_t)low;
	g->counter[1] = (uint32_t)(low >> 32);
	g->counter[2] = (uint32_t)high;
	g->counter[3] = (uint32_t)(high >> 32);
}

uint32_t clair_philox_u32(struct clair_philox *g)
{
	if (g->next >= 4) {
		clair_philox_block(g->counter, g->key, g->block);
		advance(g, 1);
		g->next = 0;
	}
	return g->block[g->next++];
}

void clair_philox_skip(struct clair_philox *g, uint64_t count)
{
	while (count && g->next < 4) {
		g->next++;
		count--;
	}
	advance(g, count / 4);
	for (count %= 4; count; count--)
		clair_philox_u32(g);
}
