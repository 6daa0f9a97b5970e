/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_WORDS_H
#define CLAIR_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A small ordered set of WORD=VALUE pairs: the words that describe one stream's order
 * (seed, sampler, world, …). Keys are unique; a later value replaces an earlier one.
 * The strings are owned by the set. Zero-initialised is empty. */
struct clair_words {
	struct clair_word {
		char *key;
		char *value;
	} *items;
	size_t count;
};

void clair_words_finish(struct clair_words *words);
/* Returns 0 or -ENOMEM. */
int clair_words_set(struct clair_words *words, const char *key, const char *value);
void clair_words_unset(struct clair_words *words, const char *key);
int clair_words_copy(struct clair_words *to, const struct clair_words *from);
/* NULL when it is not there. */
const char *clair_words_get(const struct clair_words *words, const char *key);

/* Typed access. When KEY is not there *OUT becomes FALLBACK. Return 0, or -EINVAL with
 * *error = a line for the user that names the word, its value and what would be right
 * (heap, the caller frees it); *error is not touched on success. Integers may be
 * decimal, 0x…, or negative (two's complement), underscores are not taken. */
int clair_words_u64(const struct clair_words *words, const char *key, uint64_t fallback,
		    uint64_t *out, char **error);
/* The same, with an upper bound MAX (inclusive), no negative values. */
int clair_words_uint(const struct clair_words *words, const char *key, uint64_t fallback,
		     uint64_t max, uint64_t *out, char **error);
/* 0/1, no/yes, false/true, off/on. */
int clair_words_bool(const struct clair_words *words, const char *key, bool fallback,
		     bool *out, char **error);
int clair_words_double(const struct clair_words *words, const char *key, double fallback,
		       double *out, char **error);

/* *error = a formatted line (heap); returns -EINVAL, so that `return clair_bad(…)` reads
 * well. The earlier *error is not freed. */
int clair_bad(char **error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
