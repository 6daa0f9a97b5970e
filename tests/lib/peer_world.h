/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEER_WORLD_H
#define CLAIR_PEER_WORLD_H

#include "peer_net.h"
#include "stage_world.h"

/* A job in one process: nodes with a stage each, over one folder, and a net between them. */

struct peer_world_config {
	unsigned nodes, ranks; /* ranks of the job, dealt to the nodes in runs */
	/* Of each node. Its words are without world and ranks; ram is one node's. */
	struct world_config world;
	bool unknown;       /* no order is known: its words have no sampler */
	const char *policy; /* NULL: "clairfs" */
};

struct peer_world {
	unsigned nodes, ranks;
	struct net net;
	struct world worlds[NET_NODES];
	char numbers[NET_NODES][16];
	char world_text[16];
	const char *words[NET_NODES][20]; /* of the node's stream */
	bool ended[NET_NODES];
	bool paced; /* readers wait for their node's stage before each file */
};

/* All nodes have agreed and their stages run. */
void peer_world_begin(struct peer_world *pw, const struct peer_world_config *config);
void peer_world_end(struct peer_world *pw);
/* Node NODE's stage stops and is freed, while the others go on. */
void peer_world_end_node(struct peer_world *pw, uint32_t node);
/* RANK's node. */
uint32_t peer_world_node(const struct peer_world *pw, uint32_t rank);
/* RANK reads EPOCH through its node: false when bytes were wrong or a read failed. *LONGEST
 * (may be NULL): the longest time that a file took. */
bool peer_world_epoch(struct peer_world *pw, uint32_t rank, uint64_t epoch, int64_t *longest);
/* All ranks read epochs FROM … TO - 1, each for itself. */
bool peer_world_train(struct peer_world *pw, uint64_t from, uint64_t to, int64_t *longest);
/* The same, but nobody begins an epoch before all have ended the one before. */
bool peer_world_train_together(struct peer_world *pw, uint64_t from, uint64_t to,
			       int64_t *longest);
/* Sums over all nodes. */
uint64_t peer_world_pfs(const struct peer_world *pw);       /* bytes */
uint64_t peer_world_from_peers(const struct peer_world *pw); /* bytes */
uint64_t peer_world_errors(const struct peer_world *pw);    /* that peers made */

#endif
