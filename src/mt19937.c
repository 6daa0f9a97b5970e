/* SPDX-License-Identifier: BSD-3-Clause */
#include "mt19937.h"

#define SHIFT 397

void clair_mt_seed(struct clair_mt *mt, uint32_t seed)
{
	mt->state[0] = seed;
	for (uint32_t i = 1; i < CLAIR_MT_SIZE; i++) {
		uint32_t last = mt->state[i - 1];
		mt->state[i] = 1812433253u * (last ^ last >> 30) + i;
	}
	mt->next = CLAIR_MT_SIZE;
}

void clair_mt_seed_array(struct clair_mt *mt, const uint32_t *key, size_t length)
{
	uint32_t *s = mt->state;
	size_t i = 1, j = 0;

	clair_mt_seed(mt, 19650218u);
	for (size_t k = length > CLAIR_MT_SIZE ? length : CLAIR_MT_SIZE; k; k--) {
		s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + key[j] +
		       (uint32_t)j;
		if (++i == CLAIR_MT_SIZE) {
			s[0] = s[CLAIR_MT_SIZE - 1];
			i = 1;
		}
		if (++j == length)
			j = 0;
	}
	for (size_t k = CLAIR_MT_SIZE - 1; k; k--) {
		s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - (uint32_t)i;
		if (++i == CLAIR_MT_SIZE) {
			s[0] = s[CLAIR_MT_SIZE - 1];
			i = 1;
		}
	}
	s[0] = 0x80000000u;
}

static inline uint32_t twist(uint32_t high, uint32_t low, uint32_t far)
{
	uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);

	return far ^ y >> 1 ^ (-(low & 1u) & 0x9908b0dfu);
}

void clair_mt_refill(struct clair_mt *mt)
{
	uint32_t *s = mt->state;
	uint32_t i;

	for (i = 0; i < CLAIR_MT_SIZE - SHIFT; i++)
		s[i] = twist(s[i], s[i + 1], s[i + SHIFT]);
	for (; i < CLAIR_MT_SIZE - 1; i++)
		s[i] = twist(s[i], s[i + 1], s[i + SHIFT - CLAIR_MT_SIZE]);
	s[i] = twist(s[i], s[0], s[SHIFT - 1]);
	mt->next = 0;
}

void clair_mt_skip(struct clair_mt *mt, uint64_t count)
{
	while (count > CLAIR_MT_SIZE - mt->next) {
		count -= CLAIR_MT_SIZE - mt->next;
		clair_mt_refill(mt);
	}
	mt->next += (uint32_t)count;
}
