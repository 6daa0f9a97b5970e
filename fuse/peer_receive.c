/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "peer_internal.h"

/* What comes from other nodes: batches, then the payloads that they announce. */

#define ACK_BYTES (1u << 20)
#define ACK_NS (2 * CLAIR_NS_PER_MS)
#define HEADS_A_TURN 64

void peer_acked(struct peer *p, struct peer_node *n, uint64_t taken)
{
	if (taken <= n->acked || taken > n->charged)
		return;
	n->acked = taken;
	n->moved = p->now;
	n->asks = 0;
	peer_due(p, p->now);
}

static bool entry_ok(const struct peer_entry *e)
{
	if (e->small > CLAIR_LINK_SMALL || e->length > CLAIR_LINK_PAYLOAD)
		return false;
	switch (e->kind) {
	case PEER_MESSAGE:
		return true;
	case PEER_DOWN:
	case PEER_BYE:
		return !e->small && !e->length;
	case PEER_CHUNK:
		return e->small == sizeof(struct peer_bulk_head);
	case PEER_DONE:
		return e->small == sizeof(struct peer_bulk_head) && !e->length;
	default:
		return false;
	}
}

static void append(struct peer_node *n, struct peer_incoming *in)
{
	*n->in_last = in;
	n->in_last = &in->next;
	if (!n->unposted)
		n->unposted = in;
}

/* Returns what is used of SIZE bytes, 0 when they are garbage. */
static size_t take_entry(struct peer *p, struct peer_node *n, const char *bytes, size_t size)
{
	struct peer_entry e;

	if (size < sizeof e)
		return 0;
	memcpy(&e, bytes, sizeof e);
	size_t used = sizeof e + (((size_t)e.small + 7) & ~(size_t)7);
	if (!entry_ok(&e) || used > size)
		return 0;
	struct peer_incoming *in = calloc(1, sizeof *in + e.small);
	if (!in) {
		peer_doom(p, n, "no memory for what it sends");
		return used;
	}
	in->kind = e.kind;
	in->small = e.small;
	in->length = e.length;
	in->key = e.key;
	if (e.small)
		memcpy(in->bytes, bytes + sizeof e, e.small);
	append(n, in);
	return used;
}

static void take_batch(struct peer *p, struct peer_node *n, const char *bytes, size_t size)
{
	struct peer_batch head;

	if (size < sizeof head) {
		peer_garbage(p, n, "a short batch");
		return;
	}
	memcpy(&head, bytes, sizeof head);
	if (head.magic != PEER_MAGIC) {
		peer_garbage(p, n, "no batch");
		return;
	}
	peer_acked(p, n, head.taken);
	if (head.flags & PEER_ASK)
		n->asked = true;
	if (head.entries)
		n->used = p->now;
	size_t at = sizeof head;
	for (unsigned i = 0; i < head.entries; i++) {
		size_t used = take_entry(p, n, bytes + at, size - at);
		if (!used) {
			peer_garbage(p, n, "an entry");
			return;
		}
		at += used;
	}
}

/* Where the payload of IN goes: its landing, a bulk, else memory that is thrown away. */
static char *room_for(struct peer *p, const struct peer_node *n, struct peer_incoming *in,
		      struct peer_region **region)
{
	char *room = NULL;

	if (in->kind == PEER_MESSAGE) {
		struct peer_landing *l = p->gone ? NULL : peer_landing_find(p, in->key);
		if (l && l->state == LANDING_FREE && l->length >= in->length) {
			l->state = LANDING_BUSY;
			in->landing = l;
			l->region->users++;
			*region = l->region;
			return l->region->base + l->offset;
		}
	} else {
		room = peer_bulk_room(p, n, in);
	}
	if (room)
		return room;
	in->lost = true;
	in->scratch = malloc(in->length);
	return in->scratch;
}

/* Takes the payload of IN when it is there. Looks at its size first: a receive that is
 * smaller than what comes is not safe in every MPI. */
static bool post(struct peer *p, struct peer_node *n, struct peer_incoming *in)
{
	struct peer_op op = { .kind = PEER_OP_DATA, .node = n, .in = in };
	MPI_Message message;
	MPI_Request request;
	MPI_Status status;
	int found = 0, size = 0;

	if (MPI_Improbe((int)n->id, PEER_TAG_DATA, p->comm, &found, &message, &status) !=
		    MPI_SUCCESS ||
	    !found)
		return false;
	MPI_Get_count(&status, MPI_BYTE, &size);
	char *room;
	if (size >= 0 && (uint64_t)size == in->length) {
		room = room_for(p, n, in, &op.region);
	} else {
		peer_garbage(p, n, "a payload of another size");
		in->lost = true;
		room = in->scratch = size < 0 || size > (int)CLAIR_LINK_PAYLOAD
					     ? NULL
					     : malloc((size_t)size + 1);
	}
	if (!room || MPI_Imrecv(room, size, MPI_BYTE, &message, &request) != MPI_SUCCESS ||
	    peer_ops_add(p, op, request) < 0) {
		peer_doom(p, n, "a payload could not be received");
		return false;
	}
	in->posted = true;
	n->receives++;
	p->receives++;
	n->unanswered = 0;
	n->heard = n->moved = p->now;
	p->active = p->now;
	return true;
}

static void post_some(struct peer *p, struct peer_node *n)
{
	struct peer_incoming *in;

	while ((in = n->unposted) && !n->dead && !n->doomed) {
		if (!in->length)
			in->done = true;
		else if (n->receives >= PEER_RECEIVES || p->receives >= PEER_RECEIVES_ALL ||
			 !post(p, n, in))
			return;
		n->unposted = in->next;
	}
}

static void deliver_message(struct peer *p, struct peer_node *n, struct peer_incoming *in)
{
	if (in->landing)
		peer_landing_remove(p, in->landing);
	peer_tell(p,
		  (struct clair_link_frame){ .kind = CLAIR_LINK_MESSAGE,
					     .flags = in->lost ? CLAIR_LINK_LOST : 0,
					     .node = n->id,
					     .small = in->small,
					     .length = in->length,
					     .key = in->key },
		  in->bytes, -1);
}

static void deliver_one(struct peer *p, struct peer_node *n, struct peer_incoming *in)
{
	switch (in->kind) {
	case PEER_MESSAGE:
		if (!n->down)
			deliver_message(p, n, in);
		else if (in->landing)
			peer_landing_back(p, in->landing);
		break;
	case PEER_DOWN:
		peer_node_down(p, n);
		break;
	case PEER_BYE:
		peer_ended(p);
		break;
	case PEER_CHUNK:
		peer_bulk_took(p, n, in);
		break;
	case PEER_DONE:
		peer_bulk_done(p, n, in);
		break;
	}
}

static void free_incoming(struct peer_incoming *in)
{
	if (in->bulk)
		peer_bulk_release(in->bulk);
	free(in->scratch);
	free(in);
}

void peer_deliver(struct peer *p, struct peer_node *n)
{
	struct peer_incoming *in;

	post_some(p, n);
	while ((in = n->in) && in->done && p->out_bytes < PEER_HELD) {
		n->in = in->next;
		if (!n->in)
			n->in_last = &n->in;
		n->taken += peer_cost(in->small, in->length);
		deliver_one(p, n, in);
		free_incoming(in);
	}
	if (n->taken - n->reported >= ACK_BYTES || n->asked)
		peer_send_empty(p, n, false);
	else if (n->taken != n->reported && !n->ack_at) {
		n->ack_at = p->now + ACK_NS;
		peer_due(p, n->ack_at);
	}
}

void peer_data_done(struct peer *p, struct peer_node *n, struct peer_incoming *in)
{
	if (in->lost && in->landing) {
		peer_landing_back(p, in->landing);
		in->landing = NULL;
	}
	in->done = true;
	n->unanswered = 0;
	n->heard = n->moved = p->now;
	peer_deliver(p, n);
}

void peer_head_done(struct peer *p, struct peer_node *n)
{
	struct peer_head *h;

	while ((h = n->heads) && h->done) {
		n->heads = h->next;
		if (!n->heads)
			n->heads_last = &n->heads;
		if (!n->dead && !n->doomed)
			take_batch(p, n, h->bytes, (size_t)h->size);
		free(h);
	}
	peer_deliver(p, n);
}

/* Takes the message off MPI; 0 or -1 (of a node that is given up). */
static void take_head(struct peer *p, MPI_Message *message, const MPI_Status *status)
{
	struct peer_node *n = &p->nodes[status->MPI_SOURCE];
	int size = 0;
	MPI_Request request;

	MPI_Get_count(status, MPI_BYTE, &size);
	struct peer_head *h =
		size < 0 ? NULL : calloc(1, sizeof *h + (size_t)(size ? size : 1));
	if (!h || MPI_Imrecv(h->bytes, size, MPI_BYTE, message, &request) != MPI_SUCCESS) {
		free(h);
		peer_doom(p, n, "a batch could not be received");
		return;
	}
	h->size = size > (int)PEER_BATCH ? 0 : size; /* then it is garbage */
	*n->heads_last = h;
	n->heads_last = &h->next;
	n->batches_received++;
	n->unanswered = 0;
	n->heard = n->moved = p->now;
	p->active = p->now;
	struct peer_op op = { .kind = PEER_OP_HEAD, .node = n, .head = h };
	int done = 0;
	if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done) {
		h->done = true;
		peer_head_done(p, n);
	} else if (peer_ops_add(p, op, request) < 0) {
		peer_doom(p, n, "no memory");
	}
}

void peer_receive(struct peer *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (p->nodes[i].unposted)
			peer_deliver(p, &p->nodes[i]);
	for (int i = 0; i < HEADS_A_TURN; i++) {
		MPI_Message message;
		MPI_Status status;
		int found = 0;

		if (MPI_Improbe(MPI_ANY_SOURCE, PEER_TAG_HEAD, p->comm, &found, &message,
				&status) != MPI_SUCCESS ||
		    !found)
			return;
		take_head(p, &message, &status);
	}
}

/* N is dead: what it sent whole is delivered, the rest will not come. */
void peer_receives_end(struct peer *p, struct peer_node *n)
{
	struct peer_incoming *in = n->in;
	bool whole = true;

	n->in = n->unposted = NULL;
	n->in_last = &n->in;
	while (in) {
		struct peer_incoming *next = in->next;
		whole = whole && in->done;
		if (whole && in->kind == PEER_MESSAGE)
			deliver_message(p, n, in);
		else if ((in->done || !in->posted) && in->landing)
			peer_landing_back(p, in->landing);
		free_incoming(in);
		in = next;
	}
}
