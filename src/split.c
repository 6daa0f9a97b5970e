/* SPDX-License-Identifier: BSD-3-Clause */
#include "split.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "numpy_random.h"
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
		return clair_bad(
		    error,
		    "split=%s: must be METHOD:SEED:FRACTIONS:PART, such as "
		    "torch:42:0.8/0.2:0",
		    whole);
	s->seed = strtoull(s->seed_text, &end, 10);
	if (end == s->seed_text || *end)
		return clair_bad(error, "split=%s: '%s' is not a seed", whole,
		                 s->seed_text);
	for (char *f; (f = strsep(&s->fractions, "/"));) {
		double v = strtod(f, &end);
		if (end == f || *end || !(v > 0) || s->parts == MAX_PARTS)
			return clair_bad(error,
			                 "split=%s: '%s' is not a fraction or length",
			                 whole, f);
		s->fraction[s->parts++] = v;
	}
	return 0;
}

/* torch.utils.data.random_split: one permutation cut in order. Fractions (sum <= 1)
 * give floor(n * f), what is left goes one by one to the first parts; whole numbers are
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
		double v =
		    fractions ? floor((double)n * s->fraction[i]) : s->fraction[i];
		if (v > (double)n || (!fractions && v != floor(v)))
			return clair_bad(
			    error, "split=%s: the parts do not add up to %u", whole, n);
		length[i] = (uint32_t)v;
		total += length[i];
	}
	if (fractions && fabs(sum - 1) < 1e-6)
		for (uint64_t left = n - total, i = 0; i < left; i++) {
			length[i % s->parts]++;
			total++;
		}
	if (total != n)
		return clair_bad(
		    error, "split=%s: the parts do not add up to %u samples", whole, n);
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

/* A float is a part of n, a whole number a count: ROUND says which way a part goes. */
static double part_of(double value, uint32_t n, double (*rounded)(double))
{
	return value < 1 ? rounded(value * n) : value;
}

static int copy_part(const uint32_t *from, uint32_t n, uint32_t **positions,
                     uint32_t *count)
{
	uint32_t *out = malloc(sizeof *out * (n + 1ul));

	if (!out)
		return -ENOMEM;
	if (n)
		memcpy(out, from, sizeof *out * n);
	*positions = out;
	*count = n;
	return 0;
}

static bool is_train(const char *part)
{
	return !strcmp(part, "train") || !strcmp(part, "training");
}

static bool is_held_out(const char *part)
{
	return !strcmp(part, "test") || !strcmp(part, "valid") ||
	       !strcmp(part, "val") || !strcmp(part, "validation");
}

/* Which generator permutes. */
static void permute_torch(uint64_t seed, uint32_t n, uint32_t *out)
{
	struct clair_mt mt;

	clair_torch_seed(&mt, seed);
	clair_torch_randperm(&mt, n, out);
}

static void permute_state(uint64_t seed, uint32_t n, uint32_t *out)
{
	struct clair_mt mt;

	clair_mt_seed(&mt, (uint32_t)seed);
	clair_np_permutation(&mt, n, out);
}

static void permute_pcg64(uint64_t seed, uint32_t n, uint32_t *out)
{
	struct clair_pcg64 g;

	clair_pcg64_seed(&g, seed);
	clair_pcg64_permutation(&g, n, out);
}

/* One permutation; what is held out stands in front, or (keras) behind; train is the
 * rest, or a second fraction of the whole. */
static const struct method {
	const char *name;
	void (*permute)(uint64_t seed, uint32_t n, uint32_t *out);
	double (*held_out)(double);
	bool behind;
	uint64_t max_seed;
} methods[] = {
    {"sklearn", permute_state, ceil, false, UINT32_MAX},
    {"hf", permute_pcg64, ceil, false, UINT64_MAX},
    {"fastai", permute_torch, floor, false, UINT64_MAX},
    {"keras", permute_state, floor, true, UINT32_MAX},
};

static int split_two(const struct method *m, const struct spec *s, const char *whole,
                     uint32_t n, uint32_t **positions, uint32_t *count, char **error)
{
	double held = part_of(s->fraction[0], n, m->held_out);
	double train = s->parts > 1 ? part_of(s->fraction[1], n, floor) : n - held;

	if (s->parts > 2 || (s->parts > 1 && m->behind))
		return clair_bad(
		    error, "split=%s: one fraction is wanted, what is held out", whole);
	if (held > n || train < 0 || held + train > n || held != floor(held) ||
	    train != floor(train))
		return clair_bad(
		    error, "split=%s: the parts do not fit into %u samples", whole, n);
	if (!is_train(s->part) && !is_held_out(s->part))
		return clair_bad(error, "split=%s: PART must be train or test", whole);
	if (s->seed > m->max_seed)
		return clair_bad(error, "split=%s: the seed must be below 2^32", whole);
	autofree uint32_t *all = malloc(sizeof *all * (n + 1ul));
	if (!all)
		return -ENOMEM;
	m->permute(s->seed, n, all);
	uint32_t h = (uint32_t)held, t = (uint32_t)train;
	if (is_train(s->part))
		return copy_part(m->behind ? all : all + h, t, positions, count);
	return copy_part(m->behind ? all + t : all, h, positions, count);
}

/* pandas: df.sample(frac or n, random_state), `rest` is df.drop of it, in order. */
static int split_pandas(const struct spec *s, const char *whole, uint32_t n,
                        uint32_t **positions, uint32_t *count, char **error)
{
	double wanted = s->fraction[0] <= 1 ? rint(s->fraction[0] * n) : s->fraction[0];
	bool rest = !strcmp(s->part, "rest");

	if (s->parts != 1 || wanted > n || wanted != floor(wanted))
		return clair_bad(error, "split=%s: a fraction, or a number up to %u",
		                 whole, n);
	if (!rest && strcmp(s->part, "sample") != 0)
		return clair_bad(error, "split=%s: PART must be sample or rest", whole);
	autofree uint32_t *all = malloc(sizeof *all * (n + 1ul));
	autofree bool *taken = calloc(n + 1ul, sizeof *taken);
	if (!all || !taken)
		return -ENOMEM;
	permute_state(s->seed, n, all);
	if (!rest)
		return copy_part(all, (uint32_t)wanted, positions, count);
	for (uint32_t i = 0; i < (uint32_t)wanted; i++)
		taken[all[i]] = true;
	uint32_t left = 0;
	for (uint32_t i = 0; i < n; i++)
		if (!taken[i])
			all[left++] = i;
	return copy_part(all, left, positions, count);
}

/* sklearn's KFold(K, shuffle=True): PART trainF or testF, both ascending. */
static int split_kfold(const struct spec *s, const char *whole, uint32_t n,
                       uint32_t **positions, uint32_t *count, char **error)
{
	double folds = s->fraction[0];
	bool train = !strncmp(s->part, "train", 5);
	const char *number = s->part + (train                          ? 5
	                                : !strncmp(s->part, "test", 4) ? 4
	                                                               : 0);
	char *end = NULL;
	unsigned long fold = strtoul(number, &end, 10);

	if (s->parts != 1 || folds < 2 || folds > n || folds != floor(folds))
		return clair_bad(error,
		                 "split=%s: kfold wants a number of folds, 2 to %u",
		                 whole, n);
	if (number == s->part || *number < '0' || *number > '9' || *end ||
	    (double)fold >= folds)
		return clair_bad(
		    error, "split=%s: PART must be train0 or test0 and so on", whole);
	autofree uint32_t *all = malloc(sizeof *all * (n + 1ul));
	autofree bool *in_fold = calloc(n + 1ul, sizeof *in_fold);
	if (!all || !in_fold)
		return -ENOMEM;
	permute_state(s->seed, n, all);
	uint32_t k = (uint32_t)folds, f = (uint32_t)fold, size = n / k + (f < n % k);
	uint32_t begin = n / k * f + (f < n % k ? f : n % k), found = 0;
	for (uint32_t i = 0; i < size; i++)
		in_fold[all[begin + i]] = true;
	for (uint32_t i = 0; i < n; i++)
		if (in_fold[i] != train)
			all[found++] = i;
	return copy_part(all, found, positions, count);
}

int clair_split_new(const char *spec, uint32_t n, uint32_t **positions, uint32_t *count,
                    char **error)
{
	autofree char *text = strdup(spec);
	struct spec s = {0};

	if (!text)
		return -ENOMEM;
	int r = parse(text, spec, &s, error);
	if (r < 0)
		return r;
	if (!strcmp(s.method, "torch"))
		return split_torch(&s, spec, n, positions, count, error);
	if (!strcmp(s.method, "pandas"))
		return split_pandas(&s, spec, n, positions, count, error);
	if (!strcmp(s.method, "kfold"))
		return split_kfold(&s, spec, n, positions, count, error);
	for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
		if (!strcmp(s.method, methods[i].name))
			return split_two(&methods[i], &s, spec, n, positions, count,
			                 error);
	return clair_bad(
	    error,
	    "split=%s: the method must be torch, sklearn, hf, fastai, keras, pandas or "
	    "kfold",
	    spec);
}
