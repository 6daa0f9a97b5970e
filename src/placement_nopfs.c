/* SPDX-License-Identifier: BSD-3-Clause */
/* Policy "nopfs", to compare with (Dryden et al., SC'21): each node ranks the samples by how
 * often it reads them, fills its classes (RAM, then directories) from the top, and fetches
 * each class in the order of first use. Of several holders the one is asked that has the
 * sample in the lowest class, of those in the lowest place of that order. Ties in the
 * ranking, which the paper leaves open: earliest use first. */
#include "placement_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

/* Samples of the ranks' lists that are held at a time, for each sample of the job. */
#define HELD 4u
#define CLASSES 2u
#define NOT_HELD 0xffu

/* What one rank reads in one epoch: LISTS[at], … */
struct part {
	size_t at, count;
	uint32_t epoch;
	uint16_t stream, node;
};

struct job {
	const struct clair_placement_input *input;
	struct clair_placement *p;
	enum clair_walk *walk; /* by stream */
	uint16_t *owner;  /* by id */
	uint32_t *best;   /* by id: class * 2^31 + place of the holder so far */
	uint8_t *count;   /* by id: reads of the node in hand; then its class */
	uint64_t *held;   /* by node, bytes, what others hold too included */
	uint32_t epochs;  /* of the stream that has most */
	uint32_t low, high; /* nodes whose lists are held */
	struct clair_indices lists;
	struct part *parts;
	size_t part_count, part_room;
	struct clair_indices mine; /* its parts */
	struct clair_indices touched, ranked; /* of the node in hand, by first use, by reads */
};

static int add_part(struct job *j, const struct clair_indices *ids, uint16_t stream,
		    uint32_t epoch, uint16_t node)
{
	if (j->part_count == j->part_room) {
		size_t room = j->part_room ? j->part_room * 2 : 64;
		struct part *parts = realloc(j->parts, room * sizeof *parts);
		if (!parts)
			return -ENOMEM;
		j->parts = parts;
		j->part_room = room;
	}
	int r = clair_indices_reserve(&j->lists, j->lists.count + ids->count);
	if (r < 0)
		return r;
	size_t at = j->lists.count;
	for (size_t i = 0; i < ids->count; i++)
		if (j->owner[ids->at[i]] == stream)
			j->lists.at[j->lists.count++] = ids->at[i];
	j->parts[j->part_count++] = (struct part){ .at = at, .count = j->lists.count - at,
						   .epoch = epoch, .stream = stream,
						   .node = node };
	return 0;
}

/* All that the nodes in hand read. 1: more than MOST, and there are fewer nodes to take. */
static int collect(struct job *j, size_t most)
{
	const struct clair_placement_input *input = j->input;
	struct clair_indices ids = { 0 };
	int r = 0;

	j->lists.count = j->part_count = 0;
	for (uint32_t e = 0; e < j->epochs && r == 0; e++) {
		for (size_t s = 0; s < input->stream_count && r == 0; s++) {
			struct clair_stream *stream = input->streams[s];
			if (j->walk[s] != CLAIR_WALK_RANKS ||
			    e >= clair_placement_epochs(input, stream))
				continue;
			uint32_t world = clair_stream_world(stream);
			uint64_t epoch = clair_stream_first_epoch(stream) + e;
			for (uint32_t rank = 0; rank < world && r == 0; rank++) {
				uint16_t node = input->node_of_rank[s][rank];
				if (node < j->low || node >= j->high)
					continue;
				r = clair_stream_ids(stream, epoch, rank, &ids);
				if (r == 0)
					r = add_part(j, &ids, (uint16_t)s, e, node);
				if (r == 0 && j->lists.count > most && j->high - j->low > 1)
					r = 1;
			}
		}
	}
	clair_indices_finish(&ids);
	return r;
}

/* PARTS[first .. end) are those of one stream and epoch; NODE's ranks go on side by side. */
static int touch(struct job *j, size_t first, size_t end, uint16_t node)
{
	struct clair_indices *mine = &j->mine;
	size_t longest = 0;
	int r = 0;

	mine->count = 0;
	for (size_t k = first; k < end && r == 0; k++) {
		if (j->parts[k].node != node)
			continue;
		longest = j->parts[k].count > longest ? j->parts[k].count : longest;
		r = clair_indices_append(mine, (uint32_t)k);
	}
	for (size_t i = 0; i < longest && r == 0; i++) {
		for (size_t k = 0; k < mine->count && r == 0; k++) {
			const struct part *part = &j->parts[mine->at[k]];
			if (i >= part->count)
				continue;
			uint32_t id = j->lists.at[part->at + i];
			if (!j->count[id])
				r = clair_indices_append(&j->touched, id);
			/* NOT_HELD and the classes are other uses of it: stay below */
			j->count[id] += j->count[id] < UINT8_MAX - 1;
		}
	}
	return r;
}

/* The touched ones, those that are read most often first. */
static int rank_by_reads(struct job *j)
{
	size_t place[UINT8_MAX + 2] = { 0 };

	int r = clair_indices_reserve(&j->ranked, j->touched.count);
	if (r < 0)
		return r;
	for (size_t i = 0; i < j->touched.count; i++)
		place[UINT8_MAX - j->count[j->touched.at[i]] + 1]++;
	for (size_t k = 0; k < UINT8_MAX; k++)
		place[k + 1] += place[k];
	for (size_t i = 0; i < j->touched.count; i++) {
		uint32_t id = j->touched.at[i];
		j->ranked.at[place[UINT8_MAX - j->count[id]]++] = id;
	}
	j->ranked.count = j->touched.count;
	return 0;
}

/* The first that does not fit opens the next class, and closes the last one. */
static void fill_classes(struct job *j, uint32_t node)
{
	const struct clair_placement_node *n = &j->input->nodes[node];
	const uint64_t room[CLASSES] = { n->ram, n->cache };
	uint64_t used = 0;
	uint32_t class = 0;

	for (size_t i = 0; i < j->ranked.count; i++) {
		uint32_t id = j->ranked.at[i];
		uint64_t size = clair_placement_size(j->input, id);

		while (class < CLASSES && size > room[class] - used) {
			class++;
			used = 0;
		}
		if (class < CLASSES)
			used += size;
		j->count[id] = class < CLASSES ? (uint8_t)class : NOT_HELD;
	}
}

static void place_node(struct job *j, uint16_t node)
{
	uint32_t place[CLASSES] = { 0 };

	for (size_t i = 0; i < j->touched.count; i++) {
		uint32_t id = j->touched.at[i], class = j->count[id];

		j->count[id] = 0;
		if (class == NOT_HELD)
			continue;
		uint32_t key = class << 31 | place[class]++;
		j->held[node] += clair_placement_size(j->input, id);
		if (node == j->input->self)
			clair_placement_put_copy(j->p, id);
		if (key < j->best[id]) {
			j->best[id] = key;
			j->p->homes[id] = node;
		}
	}
}

static int do_node(struct job *j, uint16_t node)
{
	size_t end;
	int r = 0;

	j->touched.count = 0;
	for (size_t first = 0; first < j->part_count && r == 0; first = end) {
		const struct part *part = &j->parts[first];
		for (end = first; end < j->part_count && j->parts[end].epoch == part->epoch &&
				  j->parts[end].stream == part->stream;)
			end++;
		r = touch(j, first, end, node);
	}
	if (r == 0)
		r = rank_by_reads(j);
	if (r == 0) {
		fill_classes(j, node);
		place_node(j, node);
	}
	return r;
}

/* As many nodes at a time as the memory for their lists allows: each time, the epochs are
 * made anew. */
static int do_all(struct job *j)
{
	size_t most = (size_t)HELD * (j->p->count + 1ul);
	uint32_t nodes = j->p->node_count;
	uint32_t passes = (j->epochs + HELD - 1) / HELD;
	uint32_t step = passes ? (nodes + passes - 1) / passes : nodes;
	int r = 0;

	most += most / 8; /* some read a little more */
	for (j->low = 0; j->low < nodes && r >= 0; j->low = j->high) {
		do {
			j->high = step < nodes - j->low ? j->low + step : nodes;
			r = collect(j, most);
			step = r == 1 ? (step + 1) / 2 : step;
		} while (r == 1);
		for (uint32_t node = j->low; node < j->high && r == 0; node++)
			r = do_node(j, (uint16_t)node);
	}
	return r;
}

/* Where nothing is known NoPFS cannot do anything; where all read all it would keep the same
 * on every node: a home by the hash, where it has room. */
static void place_unknown(struct job *j)
{
	struct clair_placement *p = j->p;

	for (uint32_t id = 0; id < p->count; id++) {
		if (p->homes[id] != CLAIR_NO_NODE)
			p->filled[p->homes[id]] += clair_placement_size(j->input, id);
	}
	for (uint32_t id = 0; id < p->count; id++) {
		if (j->owner[id] == CLAIR_NO_NODE ||
		    j->walk[j->owner[id]] == CLAIR_WALK_RANKS)
			continue;
		uint64_t size = clair_placement_size(j->input, id);
		uint16_t node = clair_placement_pick(p, clair_placement_mix(id, 0));
		if (size <= p->capacity[node] && j->held[node] <= p->capacity[node] - size) {
			j->held[node] += size;
			clair_placement_put(p, id, node, size);
		}
	}
}

static int job_init(struct job *j)
{
	size_t room = j->p->count + 1ul;

	j->walk = calloc(j->input->stream_count + 1, sizeof *j->walk);
	if (!j->walk)
		return -ENOMEM;
	for (size_t s = 0; s < j->input->stream_count; s++) {
		int r = clair_placement_walk(j->input, s, &j->walk[s]);
		if (r < 0)
			return r;
		uint32_t epochs = clair_placement_epochs(j->input, j->input->streams[s]);
		j->epochs = epochs > j->epochs ? epochs : j->epochs;
	}
	j->owner = malloc(room * sizeof *j->owner);
	j->best = malloc(room * sizeof *j->best);
	j->count = calloc(room, sizeof *j->count);
	j->held = calloc(j->p->node_count, sizeof *j->held);
	if (!j->owner || !j->best || !j->count || !j->held)
		return -ENOMEM;
	memset(j->owner, 0xff, room * sizeof *j->owner);
	memset(j->best, 0xff, room * sizeof *j->best);
	return clair_placement_claim(j->input, j->owner);
}

static int place(const struct clair_placement_input *input, struct clair_placement **out)
{
	struct job j = { .input = input };

	int r = clair_placement_new(input, &j.p);
	if (r < 0)
		return r;
	r = job_init(&j);
	if (r == 0)
		r = do_all(&j);
	if (r == 0) {
		place_unknown(&j);
		*out = j.p;
	} else {
		clair_placement_free(j.p);
	}
	free(j.walk);
	free(j.owner);
	free(j.best);
	free(j.count);
	free(j.held);
	free(j.parts);
	clair_indices_finish(&j.lists);
	clair_indices_finish(&j.mine);
	clair_indices_finish(&j.touched);
	clair_indices_finish(&j.ranked);
	return r;
}

const struct clair_policy clair_policy_nopfs = {
	.name = "nopfs",
	.help = "each node keeps what it reads most often over the run, whoever else does",
	.place = place,
};
