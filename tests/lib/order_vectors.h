/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TEST_ORDER_VECTORS_H
#define CLAIR_TEST_ORDER_VECTORS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "sampler.h"

/* Recorded orders (tests/vectors/NAME.json) for Criterion tests; everything fails the test
 * by itself when something is missing. */

/* The caller's to json_decref. */
json_t *vectors_load(const char *name);
uint64_t vectors_u64(const json_t *object, const char *key);
uint64_t vectors_u64_or(const json_t *object, const char *key, uint64_t fallback);
/* A number or a text, as text; the result is good until the next but seven calls. */
const char *vectors_text(const json_t *object, const char *key);
/* WANT is a JSON array of indices; it may be shorter than COUNT when PREFIX. */
void vectors_same(const json_t *want, const uint32_t *got, size_t count, bool prefix,
		  const char *what);
/* ITEM has n (or len), head/tail/first and xxh3_64 over little-endian u32. */
void vectors_hashed(const json_t *item, const uint32_t *got, size_t count, const char *what);

uint64_t vectors_fnv(uint64_t h, const uint32_t *items, size_t n);

/* NAME.json is a list of samplers: {sampler, n, world, words, sizes, files, want}, WANT the
 * {epoch, rank, order} to expect, in the order in which they are asked for (order, or fnv
 * and len of a long one). FILES are words whose value is a file with these lines. */
void vectors_orders(const char *name);

#endif
