/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MT19937_H
#define CLAIR_MT19937_H

#include <stddef.h>
#include <stdint.h>

/* The 32-bit Mersenne Twister (Matsumoto and Nishimura, 1998), as torch, NumPy, CPython
 * and libstdc++ use it. Plain data: may be copied to save a position. */

#define CLAIR_MT_SIZE 624

struct clair_mt {
	uint32_t state[CLAIR_MT_SIZE];
	uint32_t next; /* of the state's words, 624: make new ones first */
};

/* init_genrand. */
void clair_mt_seed(struct clair_mt *mt, uint32_t seed);
/* init_by_array; LENGTH >= 1. */
void clair_mt_seed_array(struct clair_mt *mt, const uint32_t *key, size_t length);
/* Makes the next 624 words. */
void clair_mt_refill(struct clair_mt *mt);
/* Goes on as if COUNT u32 had been drawn. */
void clair_mt_skip(struct clair_mt *mt, uint64_t count);

static inline uint32_t clair_mt_temper(uint32_t y)
{
	y ^= y >> 11;
	y ^= y << 7 & 0x9d2c5680u;
	y ^= y << 15 & 0xefc60000u;
	return y ^ y >> 18;
}

static inline uint32_t clair_mt_u32(struct clair_mt *mt)
{
	if (mt->next >= CLAIR_MT_SIZE)
		clair_mt_refill(mt);
	return clair_mt_temper(mt->state[mt->next++]);
}

/* Two words, the first one is the high half (torch's random64). */
static inline uint64_t clair_mt_u64(struct clair_mt *mt)
{
	uint64_t high = clair_mt_u32(mt);

	return high << 32 | clair_mt_u32(mt);
}

#endif
