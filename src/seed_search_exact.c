/* SPDX-License-Identifier: BSD-3-Clause */
/* One seed of torch's generator, exactly. */
#include "seed_search_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "mt19937.h"

uint32_t *clair_swaps_place(struct swaps *s, uint32_t at)
{
	uint32_t h = at * 2654435761u & s->mask;

	while (s->key[h] && s->key[h] != at + 1)
		h = (h + 1) & s->mask;
	if (!s->key[h]) {
		s->key[h] = at + 1;
		s->value[h] = at;
		s->used[s->count++] = h;
	}
	return &s->value[h];
}

int clair_swaps_init(struct swaps *s, uint32_t entries)
{
	uint64_t room = 64;

	while (room < entries * 4ull)
		room *= 2;
	s->key = calloc(room, sizeof *s->key);
	s->value = malloc(room * sizeof *s->value);
	s->used = malloc(room * sizeof *s->used);
	s->mask = (uint32_t)(room - 1);
	s->count = 0;
	if (s->key && s->value && s->used)
		return 0;
	clair_swaps_finish(s);
	return -ENOMEM;
}

void clair_swaps_finish(struct swaps *s)
{
	free(s->key);
	free(s->value);
	free(s->used);
	*s = (struct swaps){ 0 };
}

uint64_t clair_seed_entries(const struct clair_seed_target *t)
{
	uint64_t entries = t->rank + (uint64_t)t->world * (t->prefix - 1) + 1;

	return entries < t->n ? entries : t->n;
}

int clair_seed_check(const struct clair_seed_target *t)
{
	if (!t->n || t->n > 1u << 31 || !t->prefix || !t->world || t->rank >= t->world ||
	    t->rank >= t->n || t->rank + t->skip >= CLAIR_SEED_OUTPUTS ||
	    clair_seed_entries(t) > CLAIR_SEED_PREFIX)
		return -EINVAL;
	return 0;
}

/* Entry I of the permutation, after those before it. */
static uint32_t next_entry(struct swaps *s, struct clair_mt *mt, uint32_t n, uint32_t i)
{
	uint32_t z = i + 1 < n ? i + clair_mt_u32(mt) % (n - i) : i;
	uint32_t at_i = *clair_swaps_place(s, i), *at_z = clair_swaps_place(s, z);
	uint32_t entry = *at_z;

	*at_z = at_i;
	return entry;
}

void clair_swaps_empty(struct swaps *s)
{
	while (s->count)
		s->key[s->used[--s->count]] = 0;
}

bool clair_seed_fits_with(const struct clair_seed_target *t, uint32_t seed, struct swaps *s)
{
	uint32_t entries = (uint32_t)clair_seed_entries(t);
	struct clair_mt mt;
	bool all = true;

	clair_mt_seed(&mt, seed);
	clair_mt_skip(&mt, t->skip);
	for (uint32_t i = 0; i < entries && all; i++) {
		uint32_t entry = next_entry(s, &mt, t->n, i);
		if (i % t->world == t->rank) {
			const uint64_t *bits = t->first && i / t->world < CLAIR_SEED_FIRST ?
						       t->first :
						       t->opened;
			all = bits[entry / 64] >> entry % 64 & 1;
		}
	}
	clair_swaps_empty(s);
	return all && (!t->sure || t->sure(t->arg, t, seed));
}

bool clair_seed_fits(const struct clair_seed_target *t, uint32_t seed)
{
	struct swaps s;
	bool yes = false;

	if (clair_seed_check(t) == 0 &&
	    clair_swaps_init(&s, (uint32_t)clair_seed_entries(t)) == 0) {
		yes = clair_seed_fits_with(t, seed, &s);
		clair_swaps_finish(&s);
	}
	return yes;
}

int clair_seed_prefix(uint32_t seed, uint32_t n, uint32_t skip, uint32_t count,
		      uint32_t *entries)
{
	struct clair_mt mt;
	struct swaps s;

	int r = clair_swaps_init(&s, count);
	if (r < 0)
		return r;
	clair_mt_seed(&mt, seed);
	clair_mt_skip(&mt, skip);
	for (uint32_t i = 0; i < count; i++)
		entries[i] = next_entry(&s, &mt, n, i);
	clair_swaps_finish(&s);
	return 0;
}
