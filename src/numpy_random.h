/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_NUMPY_RANDOM_H
#define CLAIR_NUMPY_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mt19937.h"

/* NumPy's generators as far as orders need them. np.random.RandomState(seed) is a plain
 * struct clair_mt: clair_mt_seed for an int in [0, 2^32), clair_mt_seed_array for a list. */

/* np.arange(n), the array that permutation() shuffles. */
void clair_iota(uint32_t *out, size_t n);

/* Uniform in [0, MAX]: draws masked to MAX's width, those above MAX are thrown away. */
uint32_t clair_np_interval(struct clair_mt *mt, uint32_t max);
void clair_np_shuffle(struct clair_mt *mt, uint32_t *items, size_t n);
void clair_np_permutation(struct clair_mt *mt, uint32_t n, uint32_t *out);
/* random_sample(): 53 bits of two u32. */
double clair_np_double(struct clair_mt *mt);
/* randint(low, high) with the default dtype (int64), high - low in [1, 2^32]. */
uint32_t clair_np_randint(struct clair_mt *mt, uint32_t low, uint64_t high);

/* np.random.SeedSequence with its pool of four. */
struct clair_np_seed_sequence {
	uint32_t pool[4];
};
/* ENTROPY: the integers' 32-bit words, low first, joined; SPAWN: the spawn key's. */
void clair_np_seed_sequence(struct clair_np_seed_sequence *ss, const uint32_t *entropy,
			    size_t length, const uint32_t *spawn, size_t spawn_length);
void clair_np_seed_state(const struct clair_np_seed_sequence *ss, uint32_t *out, size_t n);
/* Appends the words of one integer as SeedSequence cuts them (0 is one word); returns how
 * many, OUT has room for two. */
size_t clair_np_words(uint64_t value, uint32_t *out);

/* np.random.default_rng(seed): PCG64 (XSL-RR 128/64). */
struct clair_pcg64 {
	unsigned __int128 state, inc;
	bool half; /* HIGH is the rest of the last 64-bit output */
	uint32_t high;
};
void clair_pcg64_seed(struct clair_pcg64 *g, uint64_t seed);
void clair_pcg64_seed_sequence(struct clair_pcg64 *g,
			       const struct clair_np_seed_sequence *ss);
uint64_t clair_pcg64_u64(struct clair_pcg64 *g);
uint32_t clair_pcg64_u32(struct clair_pcg64 *g);
double clair_pcg64_double(struct clair_pcg64 *g);
/* Generator.shuffle / permutation (masked rejection). */
uint32_t clair_pcg64_interval(struct clair_pcg64 *g, uint32_t max);
void clair_pcg64_shuffle(struct clair_pcg64 *g, uint32_t *items, size_t n);
void clair_pcg64_permutation(struct clair_pcg64 *g, uint32_t n, uint32_t *out);
/* Generator.integers(0, range + 1): uniform in [0, RANGE] (Lemire). */
uint64_t clair_pcg64_bounded(struct clair_pcg64 *g, uint64_t range);
/* Generator.choice(n, k, replace=False, shuffle=SHUFFLE); K <= N. 0 or -ENOMEM. */
int clair_pcg64_choice(struct clair_pcg64 *g, uint32_t n, uint32_t k, bool shuffle,
		       uint32_t *out);

#endif
