/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_LINK_H
#define CLAIR_LINK_H

#include <stdint.h>

/* The wire between a mount process and the peer process of its node (the MPI rank): one
 * SOCK_SEQPACKET socket pair, one frame a packet, and shared memory ("regions") that both
 * map, so that the bytes of samples never go through the socket. The peer process moves
 * messages between nodes and knows nothing of what they say.
 *
 * A message is SMALL bytes, and possibly a payload. The payload is read straight from a
 * region of the sender's node, and lands straight in the region of the receiver's node that
 * its mount process named before, by KEY (LAND). Messages from one node to another arrive in
 * the order in which they were sent, or not at all. */

#define CLAIR_LINK_SMALL 16384u           /* bytes at most */
#define CLAIR_LINK_PAYLOAD (4u << 20)     /* bytes at most */
#define CLAIR_LINK_VERSION 1u

enum clair_link_kind {
	/* mount process -> peer process */
	CLAIR_LINK_REGION = 1, /* region, length; a memfd comes with it (SCM_RIGHTS) */
	CLAIR_LINK_SEND,       /* node, small; payload if length: region, offset, length, key
				  (its landing there); token comes back with SENT */
	CLAIR_LINK_LAND,       /* key, region, offset, length: room for one payload */
	CLAIR_LINK_UNLAND,     /* key: not wanted any more; UNLANDED says when the room is
				  not written to any more (unless its MESSAGE came first) */
	CLAIR_LINK_BULK,       /* length; a memfd comes with it: to every other node, once */
	CLAIR_LINK_BYE,        /* the mount ends and all others shall: they get END */
	/* peer process -> mount process */
	CLAIR_LINK_HELLO = 64, /* node: ours; token: nodes of the job. The first frame, after
				  MPI is up */
	CLAIR_LINK_MESSAGE,    /* node: sender; small; length and key of a payload that has
				  landed; LOST when it had no room and was thrown away */
	CLAIR_LINK_SENT,       /* token; DEAD when the node is down. The payload's region may
				  be written to again */
	CLAIR_LINK_UNLANDED,   /* key */
	CLAIR_LINK_STATE,      /* node: is down (DEAD), for good; does not answer at present
				  (SILENT); neither: it answers again */
	CLAIR_LINK_BULKED,     /* node: sender; length; a memfd comes with it */
	CLAIR_LINK_END,        /* another node said BYE, or the job was told to end */
};

enum {
	CLAIR_LINK_DEAD = 1,
	CLAIR_LINK_LOST = 2,
	CLAIR_LINK_SILENT = 4,
};

/* The head of every packet; SMALL bytes follow. Host order: both ends are one machine. */
struct clair_link_frame {
	uint16_t version, kind;
	uint32_t flags;
	uint32_t node;
	uint32_t small;
	uint32_t region, zero;
	uint64_t offset, length; /* bytes, in the region */
	uint64_t key;
	uint64_t token;
};

#endif
