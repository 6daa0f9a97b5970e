/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEER_NET_H
#define CLAIR_PEER_NET_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "peers.h"

/* The peer processes and the network of a job, in one process: what src/link.h says, with
 * faults that tests switch on. One thread a node brings its frames. */

#define NET_NODES 8u

struct net_faults {
	unsigned delay_us; /* of a message, at most: drawn, so that pairs overtake each other */
	unsigned lose, duplicate, truncate, corrupt; /* of 1000 messages */
	unsigned kinds; /* only messages of these kinds (bits), 0: all */
};

struct net_item;
struct net_landing;

struct net_node {
	struct net *net;
	uint32_t number;
	struct clair_peers *peers;
	struct clair_stats *stats;
	pthread_t thread;
	pthread_cond_t changed;
	/* lock */
	struct net_item *items; /* by the time when they are due */
	struct net_landing *landings;
	int64_t last_due[NET_NODES]; /* by sender: its messages stay in order */
	struct {
		unsigned char *base;
		uint64_t length;
	} regions[2];
	bool dead, closed; /* to be closed; is */
	bool stuck;        /* takes nothing from other nodes */
	unsigned waiting;  /* items */
	uint64_t delivered, lost_payloads;
};

struct net {
	unsigned count;
	pthread_mutex_t lock; /* a leaf */
	struct net_faults faults;
	struct net_node nodes[NET_NODES];
	unsigned seed;
	uint64_t serial;
	uint64_t sent[16]; /* messages by kind */
	bool over;
};

/* STATS: one a node. All nodes have got their HELLO when they look. */
void net_begin(struct net *net, unsigned count, struct clair_stats *const *stats);
/* The stages are gone. Frees the peers. */
void net_end(struct net *net);
void net_set_faults(struct net *net, const struct net_faults *faults);
void net_set_stuck(struct net *net, uint32_t node, bool stuck);
/* The node, or its peer process, is killed: the others are told, its own link closes. Does
 * not wait. */
void net_kill(struct net *net, uint32_t node);
/* Waits until NODE's peers know that their link is closed. */
void net_await_closed(struct net *net, uint32_t node);
/* Frames of KIND to NODE from its own peer process. */
void net_tell(struct net *net, uint32_t node, const struct clair_link_frame *frame);
uint64_t net_sent(struct net *net, unsigned kind);
unsigned net_waiting(struct net *net, uint32_t node);

#endif
