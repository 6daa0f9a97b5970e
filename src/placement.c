/* SPDX-License-Identifier: BSD-3-Clause */
/* What all placements have in common: the table of homes, who stands in for a node that is
 * gone, the list of policies. */
#include "placement_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A node's capacity counts up to this: sums over all nodes stay below 2^63. */
#define CAPACITY_MAX (1ull << 48)
/* Draws before a node is chosen among those alive by looking at all of them. */
#define DRAWS 64

/* Ranks that read everything: from this number on one list does for all. */
#define ALIKE 16

#define WORDS(count) (((size_t)(count) + 63) / 64)

static const struct clair_policy *const policies[] = {
	&clair_policy_home,
	&clair_policy_nopfs,
};

const struct clair_policy *clair_policy_at(size_t i)
{
	return i < sizeof policies / sizeof policies[0] ? policies[i] : NULL;
}

const struct clair_policy *clair_policy_find(const char *name)
{
	const struct clair_policy *policy;

	for (size_t i = 0; (policy = clair_policy_at(i)); i++)
		if (!strcmp(policy->name, name))
			return policy;
	return NULL;
}

uint64_t clair_placement_mix(uint64_t a, uint64_t b)
{
	return XXH3_64bits_withSeed(&a, sizeof a, b);
}

static inline uint64_t scale(uint64_t hash, uint64_t range)
{
	return (uint64_t)((unsigned __int128)hash * range >> 64);
}

uint16_t clair_placement_pick(const struct clair_placement *p, uint64_t hash)
{
	uint64_t at = scale(hash, p->weight);
	uint32_t node = p->guide[scale(hash, p->node_count)];

	while (p->ends[node] <= at)
		node++;
	return (uint16_t)node;
}

/* The shares follow the capacities; all the same when nobody has any. */
static void set_weights(struct clair_placement *p)
{
	uint32_t n = p->node_count, node = 0;

	for (uint32_t i = 0; i < n; i++) {
		p->weight += p->total ? p->capacity[i] : 1;
		p->ends[i] = p->weight;
	}
	for (uint32_t g = 0; g < n; g++) {
		uint64_t low = (uint64_t)((unsigned __int128)p->weight * g / n);

		while (p->ends[node] <= low)
			node++;
		p->guide[g] = (uint16_t)node;
	}
}

static bool is_sound(const struct clair_placement_input *input)
{
	if (!input->node_count || input->node_count > CLAIR_MAX_NODES ||
	    input->stream_count >= CLAIR_NO_NODE - 1)
		return false;
	for (size_t s = 0; s < input->stream_count; s++) {
		if (!clair_stream_known(input->streams[s]))
			continue;
		uint32_t world = clair_stream_world(input->streams[s]);
		if (!input->node_of_rank || !input->node_of_rank[s])
			return false;
		for (uint32_t rank = 0; rank < world; rank++) {
			uint16_t node = input->node_of_rank[s][rank];
			if (node >= input->node_count && node != CLAIR_NO_NODE)
				return false;
		}
	}
	return true;
}

int clair_placement_new(const struct clair_placement_input *input,
			struct clair_placement **out)
{
	if (!is_sound(input))
		return -EINVAL;
	struct clair_placement *p = calloc(1, sizeof *p);
	if (!p)
		return -ENOMEM;
	size_t nodes = p->node_count = input->node_count;
	p->count = input->catalog ? clair_catalog_count(input->catalog) : input->count;
	p->homes = malloc((p->count + 1ul) * sizeof *p->homes);
	p->copies = calloc(WORDS(p->count) + 1, sizeof *p->copies);
	p->filled = calloc(nodes, sizeof *p->filled);
	p->capacity = calloc(nodes, sizeof *p->capacity);
	p->ends = calloc(nodes, sizeof *p->ends);
	p->guide = calloc(nodes, sizeof *p->guide);
	if (!p->homes || !p->copies || !p->filled || !p->capacity || !p->ends || !p->guide) {
		clair_placement_free(p);
		return -ENOMEM;
	}
	memset(p->homes, 0xff, (p->count + 1ul) * sizeof *p->homes);
	for (size_t i = 0; i < nodes; i++) {
		uint64_t ram = input->nodes[i].ram, cache = input->nodes[i].cache;

		ram = ram < CAPACITY_MAX ? ram : CAPACITY_MAX;
		cache = cache < CAPACITY_MAX - ram ? cache : CAPACITY_MAX - ram;
		p->capacity[i] = ram + cache;
		p->total += p->capacity[i];
	}
	set_weights(p);
	*out = p;
	return 0;
}

void clair_placement_free(struct clair_placement *p)
{
	if (!p)
		return;
	free(p->homes);
	free(p->copies);
	free(p->filled);
	free(p->capacity);
	free(p->ends);
	free(p->guide);
	free(p);
}

int clair_placement_claim(const struct clair_placement_input *input, uint16_t *owner)
{
	uint32_t ids = input->catalog ? clair_catalog_count(input->catalog) : input->count;

	for (size_t s = 0; s < input->stream_count; s++) {
		uint32_t count;
		const uint32_t *samples = clair_stream_samples(input->streams[s], &count);

		for (uint32_t i = 0; i < count; i++) {
			uint32_t id = samples[i];
			if (id >= ids)
				return -EINVAL;
			if (!input->catalog ||
			    clair_catalog_entry(input->catalog, id)->kind == CLAIR_FILE)
				owner[id] = (uint16_t)s;
		}
	}
	return 0;
}

uint32_t clair_placement_epochs(const struct clair_placement_input *input,
				const struct clair_stream *stream)
{
	uint64_t most = input->epochs ? input->epochs : CLAIR_PLACEMENT_EPOCHS;
	uint64_t all = clair_stream_end_epoch(stream) - clair_stream_first_epoch(stream);

	return (uint32_t)(all < most ? all : most);
}

int clair_placement_walk(const struct clair_placement_input *input, size_t s,
			 enum clair_walk *out)
{
	struct clair_stream *stream = input->streams[s];
	struct clair_indices ids = { 0 };
	uint32_t count;

	*out = CLAIR_WALK_UNKNOWN;
	if (!clair_stream_known(stream))
		return 0;
	*out = CLAIR_WALK_RANKS;
	if (clair_stream_world(stream) <= ALIKE || !clair_placement_epochs(input, stream))
		return 0;
	int r = clair_stream_ids(stream, clair_stream_first_epoch(stream), 0, &ids);
	clair_stream_samples(stream, &count);
	if (r == 0 && (double)ids.count * clair_stream_world(stream) > (double)ALIKE * count)
		*out = CLAIR_WALK_ALIKE;
	clair_indices_finish(&ids);
	return r;
}

uint16_t clair_placement_home(const struct clair_placement *p, uint32_t id)
{
	return id < p->count ? p->homes[id] : CLAIR_NO_NODE;
}

static inline bool is_alive(const uint64_t *alive, uint32_t node)
{
	return alive[node / 64] >> node % 64 & 1;
}

/* A sample's draws are the same for ever, so that it moves only when the node that it fell
 * to goes, and whoever takes it does not depend on the order in which the others went. */
uint16_t clair_placement_home_among(const struct clair_placement *p, uint32_t id,
				    const uint64_t *alive)
{
	uint16_t home = clair_placement_home(p, id);
	uint64_t best = 0;

	if (home == CLAIR_NO_NODE || is_alive(alive, home))
		return home;
	for (uint64_t k = 1; k <= DRAWS; k++) {
		home = clair_placement_pick(p, clair_placement_mix(id, k));
		if (is_alive(alive, home))
			return home;
	}
	home = CLAIR_NO_NODE;
	for (uint32_t node = 0; node < p->node_count; node++) {
		uint64_t hash = clair_placement_mix(id, ~(uint64_t)node);
		if (is_alive(alive, node) && (home == CLAIR_NO_NODE || hash > best)) {
			best = hash;
			home = (uint16_t)node;
		}
	}
	return home;
}

bool clair_placement_copy(const struct clair_placement *p, uint32_t id)
{
	return id < p->count && (p->copies[id / 64] >> id % 64 & 1);
}

uint64_t clair_placement_filled(const struct clair_placement *p, uint32_t node)
{
	return node < p->node_count ? p->filled[node] : 0;
}

uint64_t clair_placement_hash(const struct clair_placement *p)
{
	uint64_t capacities = XXH3_64bits(p->capacity, p->node_count * sizeof *p->capacity);

	return XXH3_64bits_withSeed(p->homes, (size_t)p->count * sizeof *p->homes, capacities);
}

size_t clair_placement_memory(const struct clair_placement *p)
{
	return sizeof *p + (p->count + 1ul) * sizeof *p->homes +
	       (WORDS(p->count) + 1) * sizeof *p->copies +
	       p->node_count * (3 * sizeof(uint64_t) + sizeof(uint16_t));
}
