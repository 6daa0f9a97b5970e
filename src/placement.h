/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PLACEMENT_H
#define CLAIR_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "catalog.h"
#include "stream.h"

/* Which node of a job keeps which sample over the run: the same pure function of the same
 * inputs on every node, so that nobody has to ask. Immutable once made; no locks. */

#define CLAIR_NO_NODE UINT16_MAX
#define CLAIR_MAX_NODES 16384u

struct clair_placement_node {
	uint64_t ram, cache; /* bytes of samples that it can keep in memory, in directories */
};

struct clair_placement_input {
	const struct clair_catalog *catalog;
	const struct clair_placement_node *nodes;
	uint32_t node_count;
	uint32_t self; /* whose extra copies are wanted */
	/* The streams of the job, deepest folder last (a file belongs to the last one that
	 * has it). Their order may be unknown. Used by one thread during the call. */
	struct clair_stream **streams;
	size_t stream_count;
	/* By stream: the node of each rank of its world (CLAIR_NO_NODE: of none); NULL for
	 * a stream of unknown order. */
	const uint16_t *const *node_of_rank;
	uint32_t epochs; /* that are looked at, at most; 0: 8 */
	/* Without a catalog: bytes by id (streams of clair_stream_new_numbers). */
	const uint64_t *sizes;
	uint32_t count;
};

struct clair_placement; /* home of every catalog id */

struct clair_policy {
	const char *name; /* "clairfs", "nopfs" */
	const char *help;
	/* 0, -ENOMEM, -EINVAL (no nodes, too many, a rank's node that is none), or what a
	 * stream's order failed with. */
	int (*place)(const struct clair_placement_input *input, struct clair_placement **out);
};
/* NULL when there is no such name; by number for listings, NULL past the end. */
const struct clair_policy *clair_policy_find(const char *name);
const struct clair_policy *clair_policy_at(size_t i);

void clair_placement_free(struct clair_placement *placement);
/* The node that keeps ID when all are there; CLAIR_NO_NODE: it fits nowhere (or is in no
 * stream). */
uint16_t clair_placement_home(const struct clair_placement *placement, uint32_t id);
/* The same when only the nodes with a bit in ALIVE (node_count bits) are left: a sample
 * whose home is gone has a new one among them, spread evenly, the same in everybody's eyes,
 * whatever the order in which the others went. O(1) for most. */
uint16_t clair_placement_home_among(const struct clair_placement *placement, uint32_t id,
				    const uint64_t *alive);
/* Whether node SELF keeps a copy though it is not the home ("nopfs": whether it holds it). */
bool clair_placement_copy(const struct clair_placement *placement, uint32_t id);
/* Bytes of samples that NODE is the home of. */
uint64_t clair_placement_filled(const struct clair_placement *placement, uint32_t node);
/* XXH3 over all homes and the nodes' capacities (not over the extra copies of SELF). */
uint64_t clair_placement_hash(const struct clair_placement *placement);
size_t clair_placement_memory(const struct clair_placement *placement); /* bytes */

#endif
