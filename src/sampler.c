/* SPDX-License-Identifier: BSD-3-Clause */
#include "sampler.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "order_list.h"

#define FAMILY(name) extern const struct clair_family clair_family_##name;
#include "sampler_families.h"
#undef FAMILY

static const struct clair_family *const families[] = {
#define FAMILY(name) &clair_family_##name,
#include "sampler_families.h"
#undef FAMILY
};

#define FAMILIES (sizeof families / sizeof families[0])

/* Words that every stream may have, whatever its family makes of them. */
static const char *const common[] = { "world", "ranks",	 "epoch",   "epochs",  "batch",
				      "workers", "index", "split", "seed",    "shuffle",
				      "drop_last", "sampler", "how",
				      "opens_to_find", "seconds_to_find" };

struct clair_sampler {
	const struct clair_family *family;
	void *state;
	uint32_t n;
};

int clair_indices_reserve(struct clair_indices *list, size_t count)
{
	if (count <= list->room)
		return 0;
	size_t room = list->room + list->room / 2;
	if (room < count)
		room = count;
	uint32_t *at = realloc(list->at, room * sizeof *at);
	if (!at)
		return -ENOMEM;
	list->at = at;
	list->room = room;
	return 0;
}

int clair_indices_append(struct clair_indices *list, uint32_t index)
{
	int r = 0;

	if (list->count == list->room)
		r = clair_indices_reserve(list, list->count ? list->count * 2 : 64);
	if (r == 0)
		list->at[list->count++] = index;
	return r;
}

void clair_indices_finish(struct clair_indices *list)
{
	free(list->at);
	*list = (struct clair_indices){ 0 };
}

const struct clair_family *clair_family_at(size_t i)
{
	return i < FAMILIES ? families[i] : NULL;
}

const struct clair_family *clair_family_find(const char *name)
{
	for (size_t i = 0; i < FAMILIES; i++)
		if (!strcmp(families[i]->name, name))
			return families[i];
	return NULL;
}

static int check_words(const struct clair_family *family, const struct clair_words *words,
		       char **error)
{
	for (size_t i = 0; words && i < words->count; i++) {
		const char *key = words->items[i].key;
		bool known = false;

		for (size_t k = 0; k < sizeof common / sizeof common[0]; k++)
			known = known || !strcmp(common[k], key);
		for (const struct clair_family_word *w = family->words; w && w->name; w++)
			known = known || !strcmp(w->name, key);
		if (!known)
			return clair_bad(error,
					 "%s=%s: sampler %s has no such word; `clairfs order "
					 "--list` shows those that it takes",
					 key, words->items[i].value, family->name);
	}
	return 0;
}

int clair_sampler_new(const char *name, const struct clair_order_params *params,
		      int (*path_index)(void *arg, const char *path, uint32_t *index),
		      void *arg, struct clair_sampler **out, char **error)
{
	struct clair_sampler *s = calloc(1, sizeof *s);
	int r;

	if (!s)
		return -ENOMEM;
	s->n = params->n;
	if (!strncmp(name, "list:", 5)) {
		s->family = &clair_family_list;
		r = clair_order_list_open(name + 5, params, path_index, arg, &s->state,
					  error);
	} else {
		s->family = clair_family_find(name);
		r = s->family ? check_words(s->family, params->words, error) :
				clair_bad(error,
					  "sampler=%s: there is no such sampler; `clairfs "
					  "order --list` shows them",
					  name);
		if (r == 0)
			r = s->family->open(params, &s->state, error);
	}
	if (r < 0) {
		free(s);
		return r;
	}
	*out = s;
	return 0;
}

void clair_sampler_free(struct clair_sampler *sampler)
{
	if (!sampler)
		return;
	sampler->family->close(sampler->state);
	free(sampler);
}

int clair_sampler_epoch(struct clair_sampler *sampler, uint64_t epoch, uint32_t rank,
			struct clair_indices *out)
{
	out->count = 0;
	int r = sampler->family->epoch(sampler->state, epoch, rank, out);
	if (r < 0)
		return r;
	for (size_t i = 0; i < out->count; i++)
		if (out->at[i] >= sampler->n)
			return -ERANGE;
	return 0;
}

const struct clair_family *clair_sampler_family(const struct clair_sampler *sampler)
{
	return sampler->family;
}
