/* SPDX-License-Identifier: BSD-3-Clause */
/* Several files a sample (a picture and its mask): the dataset order has all files of a sample
 * one after the other, another family says in which order the samples come. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sampler.h"

struct state {
	struct clair_sampler *of;
	uint32_t group;
};

static void grouped_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_sampler_free(s->of);
	free(s);
}

static int copy_words(const struct clair_words *from, struct clair_words *to)
{
	int r = 0;

	for (size_t i = 0; from && i < from->count && r == 0; i++)
		if (strcmp(from->items[i].key, "of") && strcmp(from->items[i].key, "group"))
			r = clair_words_set(to, from->items[i].key, from->items[i].value);
	return r;
}

static int grouped_open(const struct clair_order_params *params, void **out, char **error)
{
	const char *of = clair_words_get(params->words, "of");
	struct clair_words words = { 0 };
	uint64_t group;

	int r = clair_words_uint(params->words, "group", 2, 1u << 16, &group, error);
	if (r < 0)
		return r;
	of = of ? of : "torch-distributed";
	if (!group || params->n % group)
		return clair_bad(error,
				 "group=%llu: %u files are not in groups of so many",
				 (unsigned long long)group, params->n);
	if (!strcmp(of, "grouped") || !strncmp(of, "list:", 5))
		return clair_bad(error, "of=%s: must be a sampler of its own", of);
	struct state *s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->group = (uint32_t)group;
	struct clair_order_params inner = { .n = params->n / s->group, .world = params->world,
					    .words = &words };
	r = copy_words(params->words, &words);
	if (r == 0)
		r = clair_sampler_new(of, &inner, NULL, NULL, &s->of, error);
	clair_words_finish(&words);
	if (r < 0) {
		grouped_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int grouped_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	struct state *s = p;
	struct clair_indices samples = { 0 };

	int r = clair_sampler_epoch(s->of, epoch, rank, &samples);
	if (r == 0)
		r = clair_indices_reserve(out, out->count + samples.count * s->group);
	for (size_t i = 0; i < samples.count && r == 0; i++)
		for (uint32_t g = 0; g < s->group; g++)
			out->at[out->count++] = samples.at[i] * s->group + g;
	clair_indices_finish(&samples);
	return r;
}

static const struct clair_family_word words[] = {
	{ "of", "torch-distributed", "the sampler of the samples" },
	{ "group", "2", "files a sample, one after the other in the dataset order" },
	{ "seed", "0", "of that sampler, like the words that follow" },
	{ "per_epoch", "1", "as there" },
	{ "cumulative", "0", "as there" },
	{ "base", "2", "as there" },
	{ "skip", "0", "as there" },
	{ "stride", "4", "as there" },
	{ "take", "stride", "as there" },
	{ NULL },
};

const struct clair_family clair_family_grouped = {
	.name = "grouped",
	.help = "several files a sample: another sampler over groups of files",
	.versions = "",
	.words = words,
	.open = grouped_open,
	.epoch = grouped_epoch,
	.close = grouped_close,
};
