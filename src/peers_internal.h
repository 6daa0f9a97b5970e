/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEERS_INTERNAL_H
#define CLAIR_PEERS_INTERNAL_H

/* Shared by the peers' own files only. */

#include <pthread.h>
#include <stdatomic.h>

#include "clock.h"
#include "peers.h"

#define SLOTS 4096u           /* requests, and answers, under way at most */
#define LATENCIES 32u         /* powers of two of microseconds */
#define MESSAGE_VERSION 1u

enum peer_kind {
	P_INFO = 1, /* struct clair_peer_info follows */
	P_GET,      /* id, piece, request */
	P_COMING,   /* request: it is being fetched */
	P_DATA,     /* request, status, length, hash; a payload when status is 0 */
	P_FOUND,    /* id: folder; text follows */
	P_ASK,      /* request: say what you are */
	P_STATUS,   /* request; text follows */
	P_DONE,     /* its command has ended; it goes on giving what it keeps */
};

/* The head of every message between mounts. Nodes of one job are of one byte order. */
struct peer_message {
	uint16_t version, kind;
	int32_t status;
	uint32_t id, piece;
	uint32_t length; /* of the payload, or of what follows */
	uint32_t loads;  /* of the sender from the source, now */
	uint64_t request;
	uint64_t hash;
	uint64_t ram, cache; /* bytes that the sender holds by now */
};

enum request_state {
	R_FREE,
	R_WAITING,
	R_DONE,  /* status, hash; its fetch has yet to see it */
	R_LIMBO, /* given up: the buffer may still be written to */
};

struct request {
	enum request_state state;
	uint64_t key; /* never used twice */
	uint16_t node;
	uint32_t id, piece;
	bool coming, landed;
	int64_t overtaken; /* monotonic ns: later requests were answered and this one not */
	int status;
	size_t size;
	uint64_t hash;
	struct clair_buffer *buffer;
	pthread_cond_t done;
	bool has_cond;
};

/* An answer whose bytes are being sent. */
struct answer {
	uint64_t token; /* 0: free */
	void (*sent)(void *arg);
	void *arg;
	uint16_t node;
	size_t length;
};

struct node {
	bool up;       /* takes part and answers */
	bool silent;   /* not up, but it may be again: it takes part */
	bool done;     /* its command has ended */
	bool misplaced; /* it has another placement: told */
	int64_t heard; /* monotonic ns of its last message */
	int64_t slow_until, slow_ns; /* the next pause; twice the one before while silent */
	uint64_t answered; /* the highest key of which something was heard */
	unsigned outstanding; /* requests to it */
	uint64_t waiting; /* bytes of those that it does not fetch itself first */
	/* What came of it since when; whether that is far too little for what waits. */
	int64_t window_at;
	uint64_t window_in;
	bool crawls;
	int64_t crawled_at; /* monotonic ns; 0: never */
	uint64_t requests, failures, timeouts;
	uint64_t in, out, samples_in, samples_out; /* bytes */
	uint64_t ram, cache;                       /* bytes that it holds, as it says */
	uint32_t loads;                            /* as it says */
	uint64_t measured;                         /* bytes */
	double rate;                               /* bytes/s; 0: not known */
	int64_t ended;                             /* its last answer that counts */
	uint64_t latency[LATENCIES];
	struct clair_peer_info *info;
	char *status; /* what it said last, of question status_request */
};

/* A get that came before anybody could serve it. */
struct early {
	struct early *next;
	uint16_t node;
	uint32_t id, piece;
	uint64_t request;
};

struct clair_peers {
	struct clair_transport transport;
	struct clair_stats *stats;
	/* Constant after clair_peers_begin. */
	struct clair_placement *placement;
	uint64_t placement_hash;
	struct clair_pool *pool;
	uint32_t self, count;

	_Atomic bool degraded; /* some node of the placement is down */
	_Atomic uint64_t ram, cache; /* bytes that this node holds */
	_Atomic uint32_t loads;      /* from the source */
	_Atomic uint32_t loading;    /* other nodes that said they have some */

	pthread_mutex_t lock; /* all that follows */
	pthread_cond_t changed; /* hello, infos, bulk, room for requests, statuses */
	struct clair_peers_server server;
	bool hello, closed, byed;
	bool silent;      /* nobody is asked any more */
	bool left;        /* nobody is served any more, or ever was to be */
	unsigned calling; /* threads that bring a frame */
	struct early *early, **early_last;
	uint32_t early_count;
	struct node *nodes;
	uint64_t *alive; /* bits, by node */
	int bulk;        /* a descriptor, or -1 */
	uint64_t bulk_size;
	struct request *requests;
	struct answer *answers;
	uint32_t next_request, next_answer; /* where the search begins */
	uint64_t serial;
	uint64_t status_request;
};

/* What every message says of its sender. */
void peers_stamp(const struct clair_peers *p, struct peer_message *message);
/* Sends MESSAGE with TEXT (length bytes when KIND has text). No locks. */
int peers_send(struct clair_peers *p, uint32_t node, struct peer_message *message,
	       const void *text, size_t size);
/* A node is not to be asked any more. lock */
void peers_down(struct clair_peers *p, uint32_t node);
bool peers_is_up(const struct clair_peers *p, uint32_t node); /* lock */
/* --- peers_request.c: lock is taken inside --- */
void peers_got_data(struct clair_peers *p, const struct clair_link_frame *frame,
		    const struct peer_message *m);
/* A payload lies in the room that its key names, whatever its message says. */
void peers_got_landed(struct clair_peers *p, const struct clair_link_frame *frame);
void peers_got_coming(struct clair_peers *p, uint16_t node, uint64_t request);
void peers_got_sent(struct clair_peers *p, const struct clair_link_frame *frame);
void peers_got_unlanded(struct clair_peers *p, uint64_t key);
/* NODE asks: GET serves it now, or it waits, or is refused. */
void peers_got_get(struct clair_peers *p, const struct clair_peers_server *server,
		   uint16_t node, const struct peer_message *m);
/* Gives what waited to the server, or refuses it when there is none. No locks. */
void peers_serve_early(struct clair_peers *p);
/* Fails what waits for NODE. lock */
void peers_fail_requests(struct clair_peers *p, uint32_t node);
/* The link is gone: nothing will be written or sent any more. No locks. */
void peers_end_all(struct clair_peers *p);

#endif
