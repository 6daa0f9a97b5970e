/* SPDX-License-Identifier: BSD-3-Clause */
#include "placement_job.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

static uint64_t drawn = 1;

uint64_t job_draw(uint64_t below)
{
	drawn = drawn * 6364136223846793005u + 1442695040888963407u;
	return (drawn >> 20) % below;
}

void job_words(const char *text, struct clair_words *words)
{
	autofree char *copy = strdup(text);
	char *rest = copy, *word;

	while ((word = strsep(&rest, " "))) {
		char *value = strchr(word, '=');
		if (!value)
			continue;
		*value++ = '\0';
		cr_assert_eq(clair_words_set(words, word, value), 0);
	}
}

void job_init(struct job *j, uint32_t n, uint32_t nodes, uint32_t world,
		     uint64_t largest, const char *text)
{
	struct clair_words words = { 0 };
	char *error = NULL, number[16];

	*j = (struct job){ 0 };
	job_words(text, &words);
	snprintf(number, sizeof number, "%u", world);
	clair_words_set(&words, "world", number);
	cr_assert_eq(clair_stream_new_numbers(n, &words, &j->stream, &error), 0, "%s", error);
	clair_words_finish(&words);
	j->sizes = malloc((n + 1ul) * sizeof *j->sizes);
	for (uint32_t i = 0; i < n; i++)
		j->bytes += j->sizes[i] = 1 + job_draw(largest);
	for (uint32_t rank = 0; rank < world; rank++)
		j->node_of_rank[rank] = (uint16_t)((uint64_t)rank * nodes / world);
	j->ranks = j->node_of_rank;
	j->input = (struct clair_placement_input){
		.nodes = j->nodes, .node_count = nodes, .streams = &j->stream,
		.stream_count = 1, .node_of_rank = &j->ranks, .sizes = j->sizes, .count = n,
	};
}

void job_room(struct job *j, uint32_t percent, bool uneven)
{
	uint32_t nodes = j->input.node_count;
	uint64_t shares = uneven ? nodes * (nodes + 1ul) / 2 : nodes;

	for (uint32_t i = 0; i < nodes; i++) {
		uint64_t room = j->bytes * percent / 100 * (uneven ? i + 1 : 1) / shares;
		j->nodes[i].ram = room / 2;
		j->nodes[i].cache = room - room / 2;
	}
}

void job_finish(struct job *j)
{
	clair_stream_free(j->stream);
	free(j->sizes);
}

struct clair_placement *job_place(struct job *j, const char *policy, uint32_t self)
{
	struct clair_placement *p = NULL;

	j->input.self = self;
	cr_assert_eq(clair_policy_find(policy)->place(&j->input, &p), 0);
	return p;
}

uint64_t job_room_of(const struct job *j, uint32_t node)
{
	return j->nodes[node].ram + j->nodes[node].cache;
}

void job_reads(struct job *j, uint32_t epochs, uint8_t (*reads)[NODES],
			uint16_t *first)
{
	struct clair_indices ids[4 * NODES] = { 0 };
	uint32_t world = clair_stream_world(j->stream);

	memset(first, 0xff, j->input.count * sizeof *first);
	for (uint32_t e = 0; e < epochs; e++) {
		size_t longest = 0;
		for (uint32_t r = 0; r < world; r++) {
			cr_assert_eq(clair_stream_ids(j->stream, e, r, &ids[r]), 0);
			longest = ids[r].count > longest ? ids[r].count : longest;
		}
		for (size_t i = 0; i < longest; i++) {
			for (uint32_t r = 0; r < world; r++) {
				if (i >= ids[r].count)
					continue;
				uint32_t id = ids[r].at[i];
				reads[id][j->ranks[r]]++;
				if (first[id] == CLAIR_NO_NODE)
					first[id] = j->ranks[r];
			}
		}
	}
	for (uint32_t r = 0; r < world; r++)
		clair_indices_finish(&ids[r]);
}
