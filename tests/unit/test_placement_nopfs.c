/* SPDX-License-Identifier: BSD-3-Clause */
/* NoPFS's policy against lists that NoPFS made. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "order_vectors.h"
#include "placement_job.h"

#define F 64

/* What NODE holds when it has only its first CLASSES classes. */
static void held_by(struct job *j, uint32_t node, int classes, bool *held)
{
	struct clair_placement_node saved[NODES];

	memcpy(saved, j->nodes, sizeof saved);
	for (uint32_t i = 0; i < NODES && classes == 1; i++)
		j->nodes[i].cache = 0;
	struct clair_placement *p = job_place(j, "nopfs", node);
	for (uint32_t id = 0; id < j->input.count; id++)
		held[id] = clair_placement_copy(p, id);
	clair_placement_free(p);
	memcpy(j->nodes, saved, sizeof saved);
}

/* Same counts of reads as what was recorded, and the same samples but for ties. */
static void check_class(const json_t *want, const bool *got, uint32_t n,
			const uint8_t (*reads)[NODES], uint32_t node)
{
	uint32_t counts[256] = { 0 }, least = 255;
	bool wanted[F] = { false };

	for (size_t i = 0; i < json_array_size(want); i++) {
		uint32_t id = (uint32_t)json_integer_value(json_array_get(want, i));
		wanted[id] = true;
		counts[reads[id][node]]++;
		least = reads[id][node] < least ? reads[id][node] : least;
	}
	for (uint32_t id = 0; id < n; id++) {
		if (got[id])
			counts[reads[id][node]]--;
		if (reads[id][node] > least)
			cr_assert_eq(wanted[id], got[id], "node %u, %u", node, id);
	}
	for (int c = 0; c < 256; c++)
		cr_assert_eq(counts[c], 0);
}

/* HOLDS[node][class]: home is the lowest class, then the lowest place by first use. */
static void check_homes(struct job *j, uint32_t epochs, bool (*holds)[2][F])
{
	uint32_t n = j->input.count, best[F], place_of[F] = { 0 };
	uint16_t home[F];
	struct clair_indices ids = { 0 };

	memset(best, 0xff, sizeof best);
	memset(home, 0xff, sizeof home);
	for (uint16_t node = 0; node < j->input.node_count; node++) {
		uint32_t next[2] = { 0 };
		bool seen[F] = { false };

		for (uint32_t e = 0; e < epochs; e++) {
			cr_assert_eq(clair_stream_ids(j->stream, e, node, &ids), 0);
			for (size_t i = 0; i < ids.count; i++) {
				uint32_t id = ids.at[i];
				int class = holds[node][0][id] ? 0 : 1;
				if (seen[id] || !holds[node][class][id])
					continue;
				seen[id] = true;
				place_of[id] = class * 1000u + next[class]++;
				if (place_of[id] < best[id]) {
					best[id] = place_of[id];
					home[id] = node;
				}
			}
		}
	}
	struct clair_placement *p = job_place(j, "nopfs", 0);
	for (uint32_t id = 0; id < n; id++)
		cr_assert_eq(clair_placement_home(p, id), home[id], "%u", id);
	clair_placement_free(p);
	clair_indices_finish(&ids);
}

static void check_vector(const json_t *item)
{
	uint32_t n = (uint32_t)vectors_u64(item, "n"), world = (uint32_t)vectors_u64(item, "world");
	uint32_t epochs = (uint32_t)vectors_u64(item, "epochs");
	const json_t *words = json_object_get(item, "words");
	const json_t *classes = json_object_get(item, "classes");
	const json_t *recorded = json_object_get(item, "reads");
	static uint8_t reads[F][NODES];
	struct clair_indices ids = { 0 };
	bool holds[4][2][F];
	uint16_t first[F];
	struct job j;
	char text[128];

	snprintf(text, sizeof text, "sampler=nopfs seed=%u batch=%u drop_last=%u",
		 (unsigned)vectors_u64(words, "seed"), (unsigned)vectors_u64(words, "batch"),
		 (unsigned)vectors_u64(words, "drop_last"));
	cr_assert(n <= F && world <= 4);
	job_init(&j, n, world, world, 1, text);
	j.input.epochs = epochs;
	memset(reads, 0, sizeof reads);
	job_reads(&j, epochs, reads, first);
	for (uint32_t node = 0; node < world; node++) {
		const json_t *own = json_array_get(classes, node);
		j.nodes[node].ram = json_array_size(json_array_get(own, 0));
		j.nodes[node].cache = json_array_size(json_array_get(own, 1));
		for (uint32_t e = 0; e < epochs; e++) {
			cr_assert_eq(clair_stream_ids(j.stream, e, node, &ids), 0);
			vectors_same(json_array_get(json_array_get(recorded, node), e), ids.at,
				     ids.count, false, "reads");
		}
	}
	for (uint32_t node = 0; node < world; node++) {
		const json_t *own = json_array_get(classes, node);

		held_by(&j, node, 1, holds[node][0]);
		held_by(&j, node, 2, holds[node][1]);
		for (uint32_t id = 0; id < n; id++) {
			cr_assert(!holds[node][0][id] || holds[node][1][id]);
			if (holds[node][0][id])
				holds[node][1][id] = false;
		}
		check_class(json_array_get(own, 0), holds[node][0], n, reads, node);
		/* what is in class 1 for sure cannot be in class 2 */
		bool both[F];
		json_t *all = json_copy(json_array_get(own, 0));
		json_array_extend(all, json_array_get(own, 1));
		for (uint32_t id = 0; id < n; id++)
			both[id] = holds[node][0][id] || holds[node][1][id];
		check_class(all, both, n, reads, node);
		json_decref(all);
	}
	check_homes(&j, epochs, holds);
	clair_indices_finish(&ids);
	job_finish(&j);
}

Test(placement_nopfs, as_recorded)
{
	json_t *all = vectors_load("placement_nopfs");

	for (size_t i = 0; i < json_array_size(all); i++)
		check_vector(json_array_get(all, i));
	json_decref(all);
}

/* More nodes' lists than are held at a time make no difference. */
Test(placement_nopfs, in_passes)
{
	struct job j;
	uint32_t held = 0, n = 3000;

	job_init(&j, n, 16, 32, 1, "seed=8");
	job_room(&j, 100, false);
	j.input.epochs = 20;
	struct clair_placement *p = job_place(&j, "nopfs", 3);
	for (uint32_t id = 0; id < n; id++)
		held += clair_placement_copy(p, id);
	cr_assert_eq(held, job_room_of(&j, 3));
	uint8_t(*reads)[NODES] = calloc(n, sizeof *reads);
	uint16_t *first = malloc(n * sizeof *first);
	uint32_t least = 255, most = 0;
	job_reads(&j, 20, reads, first);
	for (uint32_t id = 0; id < n; id++) {
		uint32_t own = reads[id][3];
		if (clair_placement_copy(p, id))
			least = own < least ? own : least;
		else
			most = own > most ? own : most;
	}
	cr_assert_leq(most, least);
	clair_placement_free(p);
	free(reads);
	free(first);
	job_finish(&j);
}
