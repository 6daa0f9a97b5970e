/* SPDX-License-Identifier: BSD-3-Clause */
#include "words.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static struct clair_word *find(const struct clair_words *words, const char *key)
{
	for (size_t i = 0; i < words->count; i++)
		if (!strcmp(words->items[i].key, key))
			return &words->items[i];
	return NULL;
}

void clair_words_finish(struct clair_words *words)
{
	for (size_t i = 0; i < words->count; i++) {
		free(words->items[i].key);
		free(words->items[i].value);
	}
	free(words->items);
	*words = (struct clair_words){ 0 };
}

int clair_words_set(struct clair_words *words, const char *key, const char *value)
{
	struct clair_word *word = find(words, key);
	char *copy = strdup(value);

	if (!copy)
		return -ENOMEM;
	if (word) {
		free(word->value);
		word->value = copy;
		return 0;
	}
	struct clair_word *items =
		realloc(words->items, (words->count + 1) * sizeof *items);
	if (!items) {
		free(copy);
		return -ENOMEM;
	}
	words->items = items;
	items[words->count] = (struct clair_word){ strdup(key), copy };
	if (!items[words->count].key) {
		free(copy);
		return -ENOMEM;
	}
	words->count++;
	return 0;
}

void clair_words_unset(struct clair_words *words, const char *key)
{
	struct clair_word *word = find(words, key);

	if (!word)
		return;
	free(word->key);
	free(word->value);
	size_t i = word - words->items;
	memmove(word, word + 1, (words->count - i - 1) * sizeof *word);
	words->count--;
}

int clair_words_copy(struct clair_words *to, const struct clair_words *from)
{
	for (size_t i = 0; i < from->count; i++) {
		int r = clair_words_set(to, from->items[i].key, from->items[i].value);
		if (r < 0)
			return r;
	}
	return 0;
}

const char *clair_words_get(const struct clair_words *words, const char *key)
{
	const struct clair_word *word = words ? find(words, key) : NULL;

	return word ? word->value : NULL;
}

int clair_bad(char **error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (vasprintf(error, format, ap) < 0)
		*error = NULL;
	va_end(ap);
	return -EINVAL;
}

int clair_words_u64(const struct clair_words *words, const char *key, uint64_t fallback,
		    uint64_t *out, char **error)
{
	const char *value = clair_words_get(words, key);
	char *end;

	if (!value) {
		*out = fallback;
		return 0;
	}
	errno = 0;
	uint64_t v = strtoull(value, &end, 0);
	if (value[0] >= '0' && value[0] <= '9' && value[1] != 'x' && value[1] != 'X')
		v = (errno = 0, strtoull(value, &end, 10)); /* 010 is ten */
	if (errno || end == value || *end || strchr(" \t\n+", *value))
		return clair_bad(error, "%s=%s: not an integer of up to 64 bits", key,
				 value);
	*out = v;
	return 0;
}

int clair_words_uint(const struct clair_words *words, const char *key, uint64_t fallback,
		     uint64_t max, uint64_t *out, char **error)
{
	const char *value = clair_words_get(words, key);
	uint64_t v;

	if (value && *value == '-')
		return clair_bad(error, "%s=%s: must not be negative", key, value);
	int r = clair_words_u64(words, key, fallback, &v, error);
	if (r < 0)
		return r;
	if (value && v > max)
		return clair_bad(error, "%s=%s: must be at most %llu", key, value,
				 (unsigned long long)max);
	*out = v;
	return 0;
}

int clair_words_bool(const struct clair_words *words, const char *key, bool fallback,
		     bool *out, char **error)
{
	static const char *const no[] = { "0", "no", "false", "off" };
	static const char *const yes[] = { "1", "yes", "true", "on" };
	const char *value = clair_words_get(words, key);

	if (!value) {
		*out = fallback;
		return 0;
	}
	for (int i = 0; i < 4; i++) {
		if (!strcasecmp(value, no[i]) || !strcasecmp(value, yes[i])) {
			*out = !strcasecmp(value, yes[i]);
			return 0;
		}
	}
	return clair_bad(error, "%s=%s: must be 0 or 1", key, value);
}

int clair_words_double(const struct clair_words *words, const char *key, double fallback,
		       double *out, char **error)
{
	const char *value = clair_words_get(words, key);
	char *end;

	if (!value) {
		*out = fallback;
		return 0;
	}
	double v = strtod(value, &end);
	if (end == value || *end || !isfinite(v))
		return clair_bad(error, "%s=%s: not a number", key, value);
	*out = v;
	return 0;
}
