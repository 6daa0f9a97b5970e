/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TEST_PLACEMENT_JOB_H
#define CLAIR_TEST_PLACEMENT_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "placement.h"

/* A job whose samples are numbers, with one stream, for Criterion tests. */

#define NODES 64

struct job {
	struct clair_stream *stream;
	struct clair_placement_node nodes[NODES];
	uint16_t node_of_rank[4 * NODES];
	const uint16_t *ranks;
	uint64_t *sizes, bytes;
	struct clair_placement_input input;
};

/* The same numbers each time a program runs. */
uint64_t job_draw(uint64_t below);
/* TEXT: word=value words, separated by blanks. */
void job_words(const char *text, struct clair_words *words);
/* WORLD ranks, node after node; sizes between 1 and LARGEST. The job must stay where it is. */
void job_init(struct job *j, uint32_t n, uint32_t nodes, uint32_t world, uint64_t largest,
	      const char *text);
/* Room for PERCENT of the bytes in all, half RAM; UNEVEN: node k has k + 1 shares. */
void job_room(struct job *j, uint32_t percent, bool uneven);
void job_finish(struct job *j);
uint64_t job_room_of(const struct job *j, uint32_t node);
/* The caller's to free. */
struct clair_placement *job_place(struct job *j, const char *policy, uint32_t self);
/* By sample and node: reads over the looked-at epochs; by sample: node of the first. */
void job_reads(struct job *j, uint32_t epochs, uint8_t (*reads)[NODES], uint16_t *first);

#endif
