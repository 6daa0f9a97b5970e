/* SPDX-License-Identifier: BSD-3-Clause */
#include "split.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "torch_perm.h"
#include "words.h"

#define MAX_PARTS 16

struct spec {
	char *method, *seed_text, *fractions, *part;
	uint64_t seed;
	double fraction[MAX_PARTS];
	unsigned parts;
};

static int parse(char *text, const char *whole, struct spec *s, char **error)
{
	char *end;

	s->method = strsep(&text, ":");
	s->seed_text = strsep(&text, ":");
	s->fractions = strsep(&text, ":");
	s->part = text;
	if (!s->method || !s->seed_text || !s->fractions || !s->part)
		return clair_bad(error,
				 "split=%s: must be METHOD:SEED:FRACTIONS:PART, such as "
				 "torch:42:0.8/0.2:0",
				 whole);
	s->seed = strtoull(s->seed_text, &end, 10);
	if (end == s->seed_text || *end)
		return clair_bad(error, "split=%s: '%s' is not a seed", whole, s->seed_text);
	for (char *f; (f = strsep(&s->fractions, "/"));) {
		double v = strtod(f, &end);
		if (end == f || *end || !(v > 0) || s->parts == MAX_PARTS)
			return clair_bad(error, "split=%s: '%s' is not a fraction or length",
					 whole, f);
		s->fraction[s->parts++] = v;
	}
	return 0;
}

/* torch.utils.data.random_split: one permutation cut in order. Fractions (sum <= 1) give
 * floor(n * f), what is left goes one by one to the first parts; whole numbers are
 * lengths. */
static int torch_lengths(const struct spec *s, const char *whole, uint32_t n,
			 uint32_t *length, char **error)
{
	double sum = 0;
	uint64_t total = 0;

	for (unsigned i = 0; i < s->parts; i++)
		sum += s->fraction[i];
	bool fractions = sum <= 1 + 1e-9;
	for (unsigned i = 0; i < s->parts; i++) {
		double v = fractions ? floor((double)n * s->fraction[i]) : s->fraction[i];
		if (v > (double)n || (!fractions && v != floor(v)))
			return clair_bad(error, "split=%s: the parts do not add up to %u",
					 whole, n);
		length[i] = (uint32_t)v;
		total += length[i];
	}
	if (fractions && fabs(sum - 1) < 1e-6)
		for (uint64_t left = n - total, i = 0; i < left; i++) {
			length[i % s->parts]++;
			total++;
		}
	if (total != n)
		return clair_bad(error, "split=%s: the parts do not add up to %u samples",
				 whole, n);
	return 0;
}

static int split_torch(const struct spec *s, const char *whole, uint32_t n,
		       uint32_t **positions, uint32_t *count, char **error)
{
	uint32_t length[MAX_PARTS], begin = 0;
	struct clair_mt mt;
	char *end;

	unsigned long part = strtoul(s->part, &end, 10);
	if (end == s->part || *end || part >= s->parts)
		return clair_bad(error, "split=%s: PART must be 0 to %u", whole,
				 s->parts - 1);
	int r = torch_lengths(s, whole, n, length, error);
	if (r < 0)
		return r;
	autofree uint32_t *all = malloc(sizeof *all * (n + 1ul));
	uint32_t *out = malloc(sizeof *out * (length[part] + 1ul));
	if (!all || !out) {
		free(out);
		return -ENOMEM;
	}
	clair_torch_seed(&mt, s->seed);
	clair_torch_randperm(&mt, n, all);
	for (unsigned i = 0; i < part; i++)
		begin += length[i];
	memcpy(out, all + begin, sizeof *out * length[part]);
	*positions = out;
	*count = length[part];
	return 0;
}

int clair_split_new(const char *spec, uint32_t n, uint32_t **positions, uint32_t *count,
		    char **error)
{
	autofree char *text = strdup(spec);
	struct spec s = { 0 };

	if (!text)
		return -ENOMEM;
	int r = parse(text, spec, &s, error);
	if (r < 0)
		return r;
	if (!strcmp(s.method, "torch"))
		return split_torch(&s, spec, n, positions, count, error);
	return clair_bad(error, "split=%s: the method must be torch", spec);
}
