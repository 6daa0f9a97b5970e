/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PYTHON_RANDOM_H
#define CLAIR_PYTHON_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "mt19937.h"

/* CPython's random.Random (3.2 and later, where not said otherwise) on a Mersenne Twister. */

/* Random(seed) for an int; of a negative one Python takes the absolute value: pass that. */
void clair_py_seed(struct clair_mt *mt, uint64_t seed);
/* The words of abs(int(TEXT)), low first, at least one: *WORDS is the caller's to free.
 * 0, -EINVAL when it is no decimal number, -ENOMEM. */
int clair_py_int_words(const char *text, uint32_t **words, size_t *count);
/* Random(int(text)) for a decimal integer of any size, with or without a sign. 0, -EINVAL
 * when it is no number, -ENOMEM. */
int clair_py_seed_decimal(struct clair_mt *mt, const char *text);
/* Random(str). 0 or -ENOMEM. */
int clair_py_seed_str(struct clair_mt *mt, const char *text);

/* k <= 64 bits. */
uint64_t clair_py_getrandbits(struct clair_mt *mt, unsigned k);
/* Uniform in [0, n); n >= 1. */
uint64_t clair_py_randbelow(struct clair_mt *mt, uint64_t n);
/* randint(a, b), both ends included. */
int64_t clair_py_randint(struct clair_mt *mt, int64_t a, int64_t b);
double clair_py_random(struct clair_mt *mt);
void clair_py_shuffle(struct clair_mt *mt, uint32_t *items, size_t n);
/* Python 2's shuffle, and Python 3's shuffle(x, random). */
void clair_py_shuffle2(struct clair_mt *mt, uint32_t *items, size_t n);
/* sample(range(n), k); K <= N. 0 or -ENOMEM. */
int clair_py_sample(struct clair_mt *mt, uint32_t n, uint32_t k, uint32_t *out);

#endif
