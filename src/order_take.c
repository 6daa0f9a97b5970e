/* SPDX-License-Identifier: BSD-3-Clause */
#include "order_take.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char *const takes[] = { "all",   "stride", "pad",	     "drop",
				     "block", "spread", "block-pad", NULL };

int clair_name_word(const struct clair_words *words, const char *key,
		    const char *const *names, unsigned fallback, unsigned *which,
		    char **error)
{
	const char *value = clair_words_get(words, key);
	char list[200] = "";

	if (!value) {
		*which = fallback;
		return 0;
	}
	for (unsigned i = 0; names[i]; i++) {
		if (strcmp(value, names[i]) == 0) {
			*which = i;
			return 0;
		}
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
	}
	return clair_bad(error, "%s=%s: it is one of %s", key, value, list);
}

int clair_take_word(const struct clair_words *words, enum clair_take fallback,
		    enum clair_take *take, char **error)
{
	unsigned which = 0;
	int r = clair_name_word(words, "take", takes, fallback, &which, error);

	if (r == 0)
		*take = (enum clair_take)which;
	return r;
}

int clair_version_word(const struct clair_words *words, const char *key,
		       const char *fallback, uint32_t *version, char **error)
{
	const char *value = clair_words_get(words, key);
	unsigned major = 0, minor = 0, patch = 0;

	if (!value)
		value = fallback;
	if (sscanf(value, "%3u.%3u.%3u", &major, &minor, &patch) < 1)
		return clair_bad(error, "%s=%s: a version like %s", key, value, fallback);
	*version = major * 1000000 + minor * 1000 + patch;
	return 0;
}

uint32_t *clair_take_room(struct clair_indices *out, size_t n)
{
	if (clair_indices_reserve(out, out->count + n + 1) < 0)
		return NULL;
	uint32_t *at = out->at + out->count;
	out->count += n;
	return at;
}

int clair_take_copy(const uint32_t *items, size_t n, struct clair_indices *out)
{
	uint32_t *at = clair_take_room(out, n);

	if (!at)
		return -ENOMEM;
	if (n)
		memcpy(at, items, n * sizeof *at);
	return 0;
}

static int stride(const uint32_t *order, size_t n, uint64_t total, uint32_t world,
		  uint32_t rank, struct clair_indices *out)
{
	uint32_t *at = NULL;

	if (n == 0 || rank >= total)
		return 0;
	at = clair_take_room(out, (size_t)((total - rank - 1) / world + 1));
	if (!at)
		return -ENOMEM;
	for (uint64_t i = rank; i < total; i += world)
		*at++ = order[i % n];
	return 0;
}

int clair_take(enum clair_take take, const uint32_t *order, size_t n, uint32_t world,
	       uint32_t rank, struct clair_indices *out)
{
	uint64_t padded = ((uint64_t)n + world - 1) / world * world, low = 0, high = 0;

	switch (take) {
	case CLAIR_TAKE_ALL:
		return clair_take_copy(order, n, out);
	case CLAIR_TAKE_STRIDE:
		return stride(order, n, n, world, rank, out);
	case CLAIR_TAKE_PAD:
		return stride(order, n, padded, world, rank, out);
	case CLAIR_TAKE_DROP:
		return stride(order, n, n - n % world, world, rank, out);
	case CLAIR_TAKE_BLOCK:
		low = (uint64_t)n * rank / world;
		high = (uint64_t)n * (rank + 1) / world;
		return clair_take_copy(order + low, (size_t)(high - low), out);
	case CLAIR_TAKE_SPREAD:
		low = n / world * (uint64_t)rank + (rank < n % world ? rank : n % world);
		high = low + n / world + (rank < n % world);
		return clair_take_copy(order + low, (size_t)(high - low), out);
	case CLAIR_TAKE_BLOCK_PAD:
		low = padded / world * rank;
		high = padded / world * ((uint64_t)rank + 1);
		uint32_t *at = clair_take_room(out, (size_t)(high - low));

		if (!at)
			return -ENOMEM;
		for (uint64_t i = low; i < high; i++)
			*at++ = order[i % n];
		return 0;
	}
	return -EINVAL;
}
