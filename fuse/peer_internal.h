/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PEER_INTERNAL_H
#define CLAIR_PEER_INTERNAL_H

#include <assert.h>
#include <mpi.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "link.h"

/* The peer process: one thread, so no locks. What goes between two peer processes are
 * batches (tag HEAD), each with entries; the payload of an entry follows as an MPI message
 * of its own (tag DATA), in the order of the entries. */

enum { PEER_TAG_HEAD = 1, PEER_TAG_DATA = 2 };

#define PEER_MAGIC 0x50434c31u
#define PEER_BATCH 49152u            /* bytes of a batch; below the eager limit of TCP */
#define PEER_WINDOW (16u << 20)      /* bytes that a node has not yet taken, at most */
#define PEER_BATCHES 4u              /* batches to one node in flight */
#define PEER_SENDS 4u                /* payloads to one node in flight */
#define PEER_RECEIVES 4u             /* payloads from one node in flight */
#define PEER_RECEIVES_ALL 64u
#define PEER_QUEUE_SMALL (8u << 20)  /* bytes waiting for one node: beyond, DEAD */
#define PEER_QUEUE_LARGE (1ull << 30)
#define PEER_HELD (8u << 20)         /* bytes for a mount process that does not read */
#define PEER_BULK_MAX (64ull << 30)
#define PEER_BULK_CHUNK (1u << 20)
#define PEER_ADDRESSES 8
#define PEER_LANDING_BUCKETS 4096u
#define PEER_LANDINGS (1u << 20) /* at most */

enum peer_kind {
	PEER_MESSAGE = 1,
	PEER_DOWN,  /* the sender's mount process is gone */
	PEER_BYE,   /* the job ends */
	PEER_CHUNK, /* of a bulk: small is struct peer_bulk_head, the payload its bytes */
	PEER_DONE,  /* to the root of a bulk: has all of it */
};

enum { PEER_ASK = 1 }; /* batch: wants an answer at once */

struct peer_batch {
	uint32_t magic;
	uint16_t flags, entries;
	uint64_t taken; /* cost of all entries of the receiver that the sender has taken */
};

struct peer_entry {
	uint16_t kind, zero;
	uint32_t small; /* bytes that follow, padded to 8 */
	uint64_t length, key;
};

struct peer_bulk_head {
	uint32_t root, id;
	uint64_t total, offset;
};
static_assert(sizeof(struct peer_batch) == 16, "goes over the network");
static_assert(sizeof(struct peer_entry) == 24, "goes over the network");
static_assert(sizeof(struct peer_bulk_head) == 24, "goes over the network");

/* What every peer process tells all others at start. */
struct peer_card {
	uint32_t magic, port;
	uint64_t secret;  /* who knows it is of this job */
	uint64_t host[2]; /* equal: the same network namespace of the same machine */
	uint32_t address[PEER_ADDRESSES]; /* network order, 0: none */
};

struct peer_region {
	struct peer_region *next;
	uint32_t id;
	int fd;
	char *base;
	uint64_t length;
	unsigned users; /* receives and sends of nodes that live */
};

struct peer_landing {
	struct peer_landing *next;
	uint64_t key;
	struct peer_region *region;
	uint64_t offset, length;
	enum { LANDING_FREE = 1, LANDING_BUSY, LANDING_STUCK } state;
	bool unwanted;
};

/* What waits to be sent to a node. */
struct peer_item {
	struct peer_item *next;
	uint16_t kind;
	bool tell; /* SENT is owed */
	uint32_t small;
	uint64_t length, key, token;
	const char *data; /* in REGION, or of a bulk */
	struct peer_region *region;
	struct peer_bulk *bulk;
	char bytes[];
};

/* What a node has announced, in its order, until it is delivered. */
struct peer_incoming {
	struct peer_incoming *next;
	uint16_t kind;
	bool posted, done, lost;
	uint32_t small;
	uint64_t length, key;
	struct peer_landing *landing;
	struct peer_bulk *bulk;
	char *scratch;
	char bytes[];
};

struct peer_head { /* a batch on its way in */
	struct peer_head *next;
	bool done;
	int size;
	char bytes[];
};

struct peer_bulk {
	struct peer_bulk *next;
	uint32_t root, id;
	uint64_t total, have;
	char *base; /* NULL when empty */
	int fd;
	unsigned users;     /* items that point into it */
	bool complete;
	unsigned char *done; /* of the root: by node, 1 when it has all, 2 when served by us */
};

struct peer_queue {
	struct peer_item *first, **last;
	uint64_t small, large; /* bytes */
};

struct peer_node {
	uint32_t id;
	bool down; /* its mount process is gone, or it is dead */
	bool dead; /* no more MPI with it */
	bool doomed; /* to be declared dead at the next turn of the loop */
	/* sending */
	struct peer_queue queue, bulk;
	unsigned batches, sends, bulk_sends, receives; /* operations in flight */
	uint64_t charged, acked;                       /* cost sent; cost taken there */
	uint64_t batches_sent;
	bool asked; /* it wants an answer */
	/* receiving */
	struct peer_head *heads, **heads_last;
	struct peer_incoming *in, **in_last, *unposted;
	uint64_t taken, reported, batches_received, batches_rung;
	/* liveness, doorbell: CLOCK_MONOTONIC ns, 0 never */
	int64_t heard, used, moved, ring_at, rung_at, ack_at, ask_at, first_ask;
	int64_t silent_since; /* it does not answer since then; 0: it does */
	unsigned unanswered, asks, verify_tries;
	struct sockaddr_in address;
	bool reachable;   /* its doorbell answered */
	bool rings_us;    /* ours was rung by it */
};

enum peer_op_kind { PEER_OP_BATCH = 1, PEER_OP_SEND, PEER_OP_HEAD, PEER_OP_DATA };

struct peer_op {
	enum peer_op_kind kind;
	struct peer_node *node;
	char *buffer;            /* of a batch; owned */
	struct peer_item *items; /* of a batch, or the one of a send; owned */
	struct peer_head *head;
	struct peer_incoming *in;
	struct peer_region *region; /* counted */
};

struct peer_stuck { /* a landing that a dead node may still write to */
	struct peer_stuck *next;
	struct peer_region *region; /* the retired mapping */
	struct peer_landing *landing;
};

struct peer_out { /* a frame for the mount process */
	struct peer_out *next;
	int fd; /* goes with it; owned */
	size_t size;
	char bytes[];
};

struct peer {
	uint32_t self, count;
	struct peer_node *nodes;
	/* the mount process */
	int fd;
	bool gone;
	struct peer_out *out, **out_last;
	size_t out_bytes;
	bool full; /* the socket takes no more now */
	/* memory */
	struct peer_region *regions, *retired;
	struct peer_stuck *stuck;
	struct peer_landing **landings; /* buckets, by key */
	size_t landing_count;
	struct peer_bulk *bulks;
	uint32_t bulk_ids;
	/* MPI */
	MPI_Comm comm;
	MPI_Request *requests;
	struct peer_op *ops;
	int *indices;
	MPI_Status *statuses;
	int op_count, op_slots;
	unsigned receives;
	/* the doorbell */
	int bell;
	struct peer_card card, *cards;
	/* time */
	int64_t now, active, due; /* CLOCK_MONOTONIC ns */
	bool ending;
	int64_t end_at;
	bool garbage_told, garbage_mount_told;
};

/* peer_process.c */
/* To be declared dead at the next turn of the loop. */
void peer_doom(struct peer *p, struct peer_node *n, const char *why);
void peer_node_down(struct peer *p, struct peer_node *n);
/* Somebody said BYE. */
void peer_ended(struct peer *p);
void peer_due(struct peer *p, int64_t at);
void peer_leave(struct peer *p, int64_t ns);
void peer_garbage(struct peer *p, const struct peer_node *n, const char *what);

/* peer_mount.c: the socket, what the mount process says */
void peer_mount_read(struct peer *p);
void peer_mount_flush(struct peer *p);
/* Takes FD (-1: none). SMALL bytes are copied. */
void peer_tell(struct peer *p, struct clair_link_frame frame, const void *small, int fd);
void peer_tell_sent(struct peer *p, uint64_t token, bool dead);

/* peer_memory.c */
/* Gives the pages back; the addresses stay ours, with memory that nobody reads: MPI may
 * still use them for a node that is dead. */
int peer_memory_retire(char *base, uint64_t length);
int peer_region_add(struct peer *p, uint32_t id, uint64_t length, int fd);
/* The region when OFFSET and LENGTH lie within it. */
struct peer_region *peer_region_find(struct peer *p, uint32_t id, uint64_t offset,
				     uint64_t length);
void peer_region_drop(struct peer *p, struct peer_region *r);
void peer_regions_forget(struct peer *p);
struct peer_landing *peer_landing_find(struct peer *p, uint64_t key);
int peer_landing_add(struct peer *p, const struct clair_link_frame *f);
void peer_landing_remove(struct peer *p, struct peer_landing *l);
/* Nothing writes to L any more, and it got nothing: free again, or unlanded. */
void peer_landing_back(struct peer *p, struct peer_landing *l);
/* A dead node may still write to L: gives its region a new mapping, and the landing back
 * when nobody can reach it by the old one. */
void peer_landing_stuck(struct peer *p, struct peer_landing *l);

/* peer_send.c */
struct peer_item *peer_item_new(enum peer_kind kind, const void *small, uint32_t size);
void peer_enqueue(struct peer *p, struct peer_node *n, struct peer_item *item);
void peer_pump(struct peer *p, struct peer_node *n);
void peer_send_empty(struct peer *p, struct peer_node *n, bool ask);
void peer_sends_end(struct peer *p, struct peer_node *n);
void peer_item_free(struct peer *p, struct peer_item *item);
uint64_t peer_cost(uint32_t small, uint64_t length);

/* peer_receive.c */
void peer_receive(struct peer *p);
void peer_head_done(struct peer *p, struct peer_node *n);
void peer_data_done(struct peer *p, struct peer_node *n, struct peer_incoming *in);
void peer_deliver(struct peer *p, struct peer_node *n);
void peer_receives_end(struct peer *p, struct peer_node *n);
void peer_acked(struct peer *p, struct peer_node *n, uint64_t taken);

/* peer_ops.c */
int peer_ops_add(struct peer *p, struct peer_op op, MPI_Request request);
/* Tests all; the number that ended. */
int peer_ops_test(struct peer *p);
/* Forgets those of N; what MPI may still touch is leaked. */
void peer_ops_abandon(struct peer *p, struct peer_node *n);

/* peer_bulk.c */
int peer_bulk_start(struct peer *p, uint64_t total, int fd);
/* Where the payload of IN lands; NULL: not wanted (again). */
char *peer_bulk_room(struct peer *p, const struct peer_node *n, struct peer_incoming *in);
void peer_bulk_took(struct peer *p, const struct peer_node *n, struct peer_incoming *in);
void peer_bulk_done(struct peer *p, struct peer_node *n, const struct peer_incoming *in);
void peer_bulk_release(struct peer_bulk *b);
void peer_bulk_node_down(struct peer *p, struct peer_node *n);
bool peer_bulk_waits_for(struct peer *p, const struct peer_node *n);

/* peer_bell.c */
int peer_bell_open(struct peer *p);
int peer_bell_meet(struct peer *p);
void peer_bell_read(struct peer *p);
void peer_ring(struct peer *p, struct peer_node *n, bool ask);
void peer_ring_soon(struct peer *p, struct peer_node *n);
bool peer_bell_trusted(const struct peer *p);

#endif
