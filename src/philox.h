/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PHILOX_H
#define CLAIR_PHILOX_H

#include <stdint.h>

/* Philox 4x32 with ten rounds (Salmon et al., 2011), as TensorFlow's PhiloxRandom steps
 * it: the key is seed, the high half of the counter starts at seed2, four words a block. */
struct clair_philox {
	uint32_t key[2], counter[4], block[4];
	uint32_t next; /* word of BLOCK, 4: make a new one */
};

/* One block of the generator itself. */
void clair_philox_block(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
void clair_philox_seed(struct clair_philox *g, uint64_t seed, uint64_t seed2);
uint32_t clair_philox_u32(struct clair_philox *g);
/* Goes on as if COUNT words had been drawn. */
void clair_philox_skip(struct clair_philox *g, uint64_t count);

#endif
