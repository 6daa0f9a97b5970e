/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEERS_H
#define CLAIR_PEERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "link.h"
#include "placement.h"
#include "stats.h"

/* The other mounts of the job, as the stage sees them: who keeps what, who is there, and
 * the bytes of a sample from its home. Thread-safe: one mutex, a leaf; no lock is held
 * while a frame is handed to the transport or an event to the server. ARCHITECTURE.md,
 * "Peers", has the messages. */
struct clair_peers;

/* How frames leave: to the peer process, or in tests to other nodes directly. Never blocks.
 * FD (or -1) stays the caller's. 0 or a negative errno. */
struct clair_transport {
	void *self;
	int (*send)(void *self, const struct clair_link_frame *frame, const void *small,
		    int fd);
};

/* What other nodes ask of this one. Called from the thread that brings frames: quick. */
struct clair_peers_server {
	void *self;
	/* NODE wants PIECE (of 4 MiB) of ID: clair_peers_answer follows, soon or later. What is
	 * asked before there is a get waits for it. */
	void (*get)(void *self, uint16_t node, uint32_t id, uint32_t piece,
		    uint64_t request);
	/* The job ends. */
	void (*end)(void *self);
	/* Another node found the order of the stream of FOLDER: TEXT is `word=value,…`. */
	void (*found)(void *self, uint32_t folder, const char *text);
	/* What this node says of itself when another one gathers the job: heap. */
	char *(*status)(void *self);
};

enum { CLAIR_REGION_ARENA, CLAIR_REGION_BUFFERS };

int clair_peers_new(const struct clair_transport *transport, struct clair_stats *stats,
		    struct clair_peers **out);
/* No more frames come. Waits for nobody: requests under way have failed by then. */
void clair_peers_free(struct clair_peers *peers);
void clair_peers_set_server(struct clair_peers *peers,
			    const struct clair_peers_server *server);
/* A frame from the peer process; FD (or -1) is taken. */
void clair_peers_frame(struct clair_peers *peers, const struct clair_link_frame *frame,
		       const void *small, int fd);
/* The peer process is gone: all other nodes are down. */
void clair_peers_closed(struct clair_peers *peers);
/* This node asks no more: what waits for others fails at once. It still serves. */
void clair_peers_stop_asking(struct clair_peers *peers);
/* This node asks and serves no more: others are refused at once. After it nothing of the pool,
 * of the regions or of the server (but its end) is used; answers under way count as sent.
 * Not from within the server's functions. */
void clair_peers_leave(struct clair_peers *peers);

/* --- beginning: in this order, by one thread --- */

/* Waits for the job: our number and how many there are. 0, -ETIMEDOUT, -EPIPE. */
int clair_peers_hello(struct clair_peers *peers, int timeout_ms, uint32_t *node,
		      uint32_t *nodes);
/* Node 0's catalog: sent, or waited for (a walk may take long; -EPIPE when the link or node
 * 0 is gone). FD is a memfd of SIZE bytes, the caller's. */
int clair_peers_send_bulk(struct clair_peers *peers, int fd, uint64_t size);
int clair_peers_wait_bulk(struct clair_peers *peers, int *fd, uint64_t *size);

#define CLAIR_PEER_RANKS 2048u
/* What nodes tell each other before they agree on the placement. */
struct clair_peer_info {
	uint64_t catalog;    /* hash */
	uint64_t ram, cache; /* bytes of samples that it can keep */
	char host[64];
	char order[2048];    /* the words that describe the orders, without ranks */
	uint32_t rank_count;
	uint32_t ranks[CLAIR_PEER_RANKS]; /* that it serves; more are not told */
};
/* Tells MINE to all and waits for theirs. Nodes that stay silent, or differ from the lowest
 * one, are left out (one line each says why). After it clair_peers_info has them. */
int clair_peers_agree(struct clair_peers *peers, const struct clair_peer_info *mine,
		      int timeout_ms);
/* NULL: that node does not take part. Constant after clair_peers_agree. */
const struct clair_peer_info *clair_peers_info(const struct clair_peers *peers,
					       uint32_t node);
/* Memory that the peer process may read payloads from and land them in. */
int clair_peers_share(struct clair_peers *peers, uint32_t region, int fd, uint64_t bytes);
/* Takes PLACEMENT; from now on clair_peers_home answers. Buffers of POOL are shared. */
void clair_peers_begin(struct clair_peers *peers, struct clair_placement *placement,
		       struct clair_pool *pool);

/* --- running --- */

/* What this node holds by now, told with every message. */
void clair_peers_hold(struct clair_peers *peers, uint64_t ram, uint64_t cache);

uint32_t clair_peers_self(const struct clair_peers *peers);
/* Who keeps ID, of those that are there; CLAIR_NO_NODE: nobody. */
uint16_t clair_peers_home(const struct clair_peers *peers, uint32_t id);
/* Whether this node keeps ID: as its home, or as one more copy. */
bool clair_peers_keeps(const struct clair_peers *peers, uint32_t id);
/* PIECE of ID, SIZE bytes, from NODE. Waits. 0: *OUT is the caller's, *HASH the XXH3 of
 * its bytes as the holder says (and as they are). -EHOSTDOWN: it is down, or slow at present;
 * -ETIMEDOUT; -ESTALE: it says that the file has changed; -EBADMSG; other errno of its own. */
int clair_peers_fetch(struct clair_peers *peers, uint16_t node, uint32_t id, uint32_t piece,
		      size_t size, struct clair_buffer **out, uint64_t *hash);
/* Seconds that SIZE bytes take from NODE, as it gave others so far; 0: not known yet. What it had
 * to fetch itself first does not count. */
double clair_peers_expect(struct clair_peers *peers, uint16_t node, uint64_t size);
/* LOADS fetches from the source are under way here (told with every message); how many nodes,
 * this one among them, have some: the model's gamma, at least 1. */
void clair_peers_load(struct clair_peers *peers, uint32_t loads);
uint32_t clair_peers_loading(struct clair_peers *peers);
/* The answer to a get. COMING: it is being fetched. Else status 0 and LENGTH bytes at OFFSET
 * of REGION with their XXH3, or a negative errno. SENT is called once, by any thread, when the
 * bytes are not needed any more (before this returns after an error). */
struct clair_piece {
	uint64_t request;
	uint32_t id, piece;
	int status;
	uint32_t region;
	uint64_t offset;
	size_t length;
	uint64_t hash;
};
void clair_peers_coming(struct clair_peers *peers, uint16_t node, uint64_t request);
void clair_peers_answer(struct clair_peers *peers, uint16_t node,
			const struct clair_piece *piece, void (*sent)(void *arg), void *arg);
/* Tells all what was found. */
void clair_peers_tell_found(struct clair_peers *peers, uint32_t folder, const char *text);
/* This node's command has ended well (told to the others once): whether those of all others
 * that are up have too. */
bool clair_peers_done(struct clair_peers *peers);
/* The mount ends, and with it the job's others. */
void clair_peers_bye(struct clair_peers *peers);
/* The report's "peers" and "node". 0 or -ENOMEM. */
int clair_peers_json(struct clair_peers *peers, json_t *object);
/* What each other node says of itself, as JSON texts by node (null: it did not). */
json_t *clair_peers_gather(struct clair_peers *peers, int timeout_ms);
/* Bytes that the nodes which are there can keep. */
uint64_t clair_peers_capacity(struct clair_peers *peers);

#endif
