/* SPDX-License-Identifier: BSD-3-Clause */
/* Who reads what, and when first: one pass over all ranks' epochs, which are made one at a
 * time and never held together. */
#include "placement_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

#define LISTED (CLAIR_NO_NODE - 1) /* in place of an owner: will be put into the order */
#define AHEAD 16                   /* memory is asked for so many reads before */
#define NEVER UINT32_MAX

struct pass {
	const struct clair_placement_input *input;
	struct clair_placement *p;
	struct clair_placement_reads *reads;
	uint16_t *owner; /* the stream by id: P's homes */
	uint16_t stream;
	enum clair_walk walk;
	uint32_t last; /* latest of the first reads in this stream */
};

/* Whether NODE comes before OTHER where both read ID at the same position: by hash, since
 * otherwise the lowest would be the first of everything that all ranks read. */
static bool goes_before(uint32_t id, uint16_t node, uint16_t other)
{
	return clair_placement_mix(id, node) < clair_placement_mix(id, other);
}

static void note(struct pass *a, uint32_t id, uint32_t when, uint16_t node)
{
	struct clair_reads *x = &a->reads->of[id];
	uint32_t *first = &a->reads->when[id];

	if (a->owner[id] != a->stream)
		return;
	if (x->count == 0) {
		*first = when;
		if (when > a->last)
			a->last = when;
		x->node[0] = node;
	} else {
		uint16_t other = node;
		if (when < *first || (when == *first && node != x->node[0] &&
				      goes_before(id, node, x->node[0]))) {
			*first = when;
			other = x->node[0];
			x->node[0] = node;
		}
		if (x->count < CLAIR_PLACEMENT_READERS)
			x->node[x->count] = other;
	}
	x->count += x->count < UINT8_MAX;
	x->own += node == a->input->self && x->own < UINT8_MAX;
}

static void note_epoch(struct pass *a, const struct clair_indices *ids, uint32_t base,
		       uint16_t node)
{
	for (size_t i = 0; i < ids->count; i++) {
		if (i + AHEAD < ids->count) {
			uint32_t next = ids->at[i + AHEAD];
			__builtin_prefetch(&a->owner[next]);
			__builtin_prefetch(&a->reads->of[next], 1);
			__builtin_prefetch(&a->reads->when[next], 1);
		}
		note(a, ids->at[i], base + (uint32_t)i, node);
	}
}

static int note_stream(struct pass *a)
{
	struct clair_stream *stream = a->input->streams[a->stream];
	const uint16_t *nodes = a->input->node_of_rank[a->stream];
	uint32_t world = clair_stream_world(stream);
	uint32_t epochs = clair_placement_epochs(a->input, stream);
	struct clair_indices ids = { 0 };
	uint64_t base = 0;
	int r = 0;

	for (uint32_t e = 0; e < epochs && r == 0; e++) {
		uint64_t epoch = clair_stream_first_epoch(stream) + e, longest = 0;

		for (uint32_t rank = 0; rank < world && r == 0; rank++) {
			if (nodes[rank] == CLAIR_NO_NODE)
				continue;
			r = clair_stream_ids(stream, epoch, rank, &ids);
			if (r < 0 || base + ids.count >= NEVER)
				break;
			note_epoch(a, &ids, (uint32_t)base, nodes[rank]);
			longest = ids.count > longest ? ids.count : longest;
		}
		base += longest;
	}
	clair_indices_finish(&ids);
	return r;
}

/* What was not gone through: a node by the hash. In an unknown order each is read once an
 * epoch, as most are; where all ranks are alike, by SELF too. */
static void fill_in(struct pass *a, const uint32_t *samples, uint32_t count)
{
	uint32_t epochs = clair_placement_epochs(a->input, a->input->streams[a->stream]);

	for (uint32_t i = 0; i < count; i++) {
		struct clair_reads *x = &a->reads->of[samples[i]];

		if (a->owner[samples[i]] != a->stream || x->count)
			continue;
		x->node[0] = clair_placement_pick(a->p, clair_placement_mix(samples[i], 0));
		if (a->walk == CLAIR_WALK_RANKS)
			continue;
		a->reads->when[samples[i]] = a->last = i;
		x->count = epochs < UINT8_MAX ? (uint8_t)epochs : UINT8_MAX;
		x->own = a->walk == CLAIR_WALK_ALIKE ? x->count : 0;
		for (uint32_t k = 1; k < x->count && k < CLAIR_PLACEMENT_READERS; k++)
			x->node[k] = x->node[0];
	}
}

/* Appends the stream's samples to the order: a counting sort by the first read, those that
 * nobody reads last. Each once, even if the dataset order repeats it. */
static int list_stream(struct pass *a)
{
	uint32_t count, shift = 0;
	const uint32_t *samples =
		clair_stream_samples(a->input->streams[a->stream], &count);
	const uint32_t *when = a->reads->when;

	fill_in(a, samples, count);
	while (a->last >> shift > count)
		shift++;
	uint32_t end = (a->last >> shift) + 1;
	autofree uint32_t *place = calloc(end + 2ul, sizeof *place);
	if (!place)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = samples[i];

		if (a->owner[id] != a->stream)
			continue;
		a->owner[id] = LISTED;
		place[(when[id] == NEVER ? end : when[id] >> shift) + 1]++;
	}
	place[0] = a->reads->total;
	for (uint32_t k = 0; k <= end; k++)
		place[k + 1] += place[k];
	a->reads->total = place[end + 1];
	for (uint32_t i = 0; i < count; i++) {
		uint32_t id = samples[i];

		if (a->owner[id] != LISTED)
			continue;
		a->owner[id] = CLAIR_NO_NODE;
		a->reads->order[place[when[id] == NEVER ? end : when[id] >> shift]++] = id;
	}
	return 0;
}

int clair_placement_reads_init(const struct clair_placement_input *input,
			       struct clair_placement *p,
			       struct clair_placement_reads *reads)
{
	struct pass a = { .input = input, .p = p, .reads = reads, .owner = p->homes };
	size_t room = p->count + 1ul, owned = 0;

	*reads = (struct clair_placement_reads){ 0 };
	int r = clair_placement_claim(input, p->homes);
	for (uint32_t id = 0; id < p->count; id++)
		owned += p->homes[id] != CLAIR_NO_NODE;
	reads->segments = calloc(input->stream_count + 1, sizeof *reads->segments);
	reads->of = calloc(room, sizeof *reads->of);
	reads->when = malloc(room * sizeof *reads->when);
	if (r == 0 && (!reads->segments || !reads->of || !reads->when))
		r = -ENOMEM;
	if (r == 0)
		memset(reads->when, 0xff, room * sizeof *reads->when);
	if (r == 0 && !(reads->order = malloc((owned + 1) * sizeof *reads->order)))
		r = -ENOMEM;
	for (size_t s = 0; s < input->stream_count && r == 0; s++) {
		a.stream = (uint16_t)s;
		a.last = 0;
		r = clair_placement_walk(input, s, &a.walk);
		if (r == 0 && a.walk == CLAIR_WALK_RANKS)
			r = note_stream(&a);
		if (r == 0)
			r = list_stream(&a);
		reads->segments[s].end = reads->total;
		reads->segments[s].walk = a.walk;
	}
	if (r < 0)
		clair_placement_reads_finish(reads);
	return r;
}

void clair_placement_reads_finish(struct clair_placement_reads *reads)
{
	free(reads->segments);
	free(reads->of);
	free(reads->when);
	free(reads->order);
	*reads = (struct clair_placement_reads){ 0 };
}
