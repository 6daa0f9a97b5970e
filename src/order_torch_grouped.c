/* SPDX-License-Identifier: BSD-3-Clause */
/* GroupedBatchSampler of torchvision's detection references: each batch of one group
 * (aspect ratio); a batch is there as soon as its group has enough, the last ones are
 * filled up. */
#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"
#include "order_groups.h"
#include "order_take.h"
#include "torch_draw.h"

#define MAX_GROUP 65535u

struct group {
	struct clair_indices seen;
	uint32_t pending; /* the last ones of SEEN, in no batch yet */
	uint64_t entered; /* breaks ties: the earlier one first */
};

struct state {
	struct clair_torch_cache cache;
	struct clair_torch_walk walk;
	uint64_t *group_of; /* owned */
	uint32_t groups, world, batch;
	uint64_t seed, skip, base, stride;
};

static void grouped_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_torch_cache_finish(&s->cache);
	free(s->group_of);
	free(s);
}

static int read_groups(struct state *s, const char *file, char **error)
{
	size_t count = 0;

	if (!file)
		return clair_bad(
		    error, "groups is needed: a file with a sample's group a line");
	int r = clair_groups_read(file, MAX_GROUP, &s->group_of, &count, error);
	if (r < 0)
		return r;
	if (count != s->cache.n)
		return clair_bad(error,
		                 "groups=%s: %zu lines; one a sample, %u, are needed",
		                 file, count, s->cache.n);
	for (size_t i = 0; i < count; i++)
		if (s->group_of[i] >= s->groups)
			s->groups = (uint32_t)s->group_of[i] + 1;
	return 0;
}

static int grouped_open(const struct clair_order_params *params, void **out,
                        char **error)
{
	struct state *s = calloc(1, sizeof *s);
	uint64_t batch = 0;

	if (!s)
		return -ENOMEM;
	s->cache.n = params->n;
	s->world = params->world;
	int r = clair_words_u64(params->words, "seed", 0, &s->seed, error);
	if (r == 0)
		r = clair_torch_skip_word(params->words, &s->skip, error);
	if (r == 0)
		r = clair_words_uint(params->words, "base", 2, 1u << 20, &s->base,
		                     error);
	if (r == 0)
		r = clair_words_uint(params->words, "stride", s->base + 2, UINT32_MAX,
		                     &s->stride, error);
	if (r == 0)
		r = clair_words_uint(params->words, "batch", 2, UINT32_MAX, &batch,
		                     error);
	if (r == 0 && !batch)
		r = clair_bad(error, "batch=0: it must be at least 1");
	if (r == 0)
		r = read_groups(s, clair_words_get(params->words, "groups"), error);
	if (r < 0) {
		grouped_close(s);
		return r;
	}
	s->batch = (uint32_t)batch;
	clair_torch_walk_init(&s->walk, s->seed);
	*out = s;
	return 0;
}

/* The short batches: the fullest groups first, filled up with their own first samples.
 */
static int fill_up(const struct state *s, struct group *groups, uint64_t left,
                   struct clair_indices *out)
{
	int r = 0;

	for (; left && r == 0; left--) {
		struct group *best = NULL;

		for (uint32_t i = 0; i < s->groups; i++) {
			struct group *g = &groups[i];

			if (g->entered && (!best || g->pending > best->pending ||
			                   (g->pending == best->pending &&
			                    g->entered < best->entered)))
				best = g;
		}
		if (!best)
			return 0;
		r = clair_take_copy(best->seen.at + best->seen.count - best->pending,
		                    best->pending, out);
		for (uint32_t k = best->pending, i = 0; k < s->batch && r == 0;
		     k++, i++)
			r = clair_indices_append(out,
			                         best->seen.at[i % best->seen.count]);
		best->entered = 0;
	}
	return r;
}

static int make_batches(const struct state *s, const struct clair_indices *order,
                        struct group *groups, struct clair_indices *out)
{
	uint64_t made = 0, clock = 0;
	int r = 0;

	for (size_t i = 0; i < order->count && r == 0; i++) {
		struct group *g = &groups[s->group_of[order->at[i]]];

		r = clair_indices_append(&g->seen, order->at[i]);
		if (!g->entered)
			g->entered = ++clock;
		if (r < 0 || ++g->pending < s->batch)
			continue;
		r = clair_take_copy(g->seen.at + g->seen.count - s->batch, s->batch,
		                    out);
		g->pending = 0;
		g->entered = ++clock;
		made++;
	}
	uint64_t whole = order->count / s->batch;
	if (r == 0 && whole > made)
		r = fill_up(s, groups, whole - made, out);
	return r;
}

static int grouped_epoch(void *p, uint64_t epoch, uint32_t rank,
                         struct clair_indices *out)
{
	struct state *s = p;
	uint64_t seed = s->seed + epoch;
	struct clair_indices mine = {0};

	if (s->world == 1)
		seed = clair_torch_walk_u32(&s->walk,
		                            s->skip + s->base + 1 + s->stride * epoch);
	const uint32_t *order = clair_torch_cache_get(&s->cache, seed);
	autofree struct group *groups = calloc(s->groups + 1ul, sizeof *groups);
	if (!order || !groups)
		return -ENOMEM;
	int r = clair_take(CLAIR_TAKE_PAD, order, s->cache.n, s->world, rank, &mine);
	if (r == 0)
		r = make_batches(s, &mine, groups, out);
	for (uint32_t i = 0; i < s->groups; i++)
		clair_indices_finish(&groups[i].seen);
	clair_indices_finish(&mine);
	return r;
}

static const struct clair_family_word words[] = {
    {"seed", "0", "of torch.manual_seed; several processes: of the DistributedSampler"},
    {"groups", "", "file with a sample's group (0, 1, …) a line"},
    {"batch", "2", "images a process and step"},
    {"base", "2", "one process: u32 drawn before an epoch's seed"},
    {"stride", "", "one process: u32 of the default generator an epoch"},
    CLAIR_TORCH_SKIP_WORDS,
    {NULL},
};

const struct clair_family clair_family_torchvision_grouped = {
    .name = "torchvision-grouped",
    .help = "GroupedBatchSampler of torchvision's detection references",
    .versions = "",
    .words = words,
    .open = grouped_open,
    .epoch = grouped_epoch,
    .close = grouped_close,
};
