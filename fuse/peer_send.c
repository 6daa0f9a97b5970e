/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "peer_internal.h"

/* What goes to other nodes: queues by node, batches, payloads, the window. */

static size_t padded(uint32_t small)
{
	return sizeof(struct peer_entry) + (((size_t)small + 7) & ~(size_t)7);
}

/* Both sides count alike. */
uint64_t peer_cost(uint32_t small, uint64_t length)
{
	return padded(small) + 64 + length;
}

struct peer_item *peer_item_new(enum peer_kind kind, const void *small, uint32_t size)
{
	struct peer_item *item = calloc(1, sizeof *item + size);

	if (!item)
		return NULL;
	item->kind = (uint16_t)kind;
	item->small = size;
	if (size)
		memcpy(item->bytes, small, size);
	return item;
}

void peer_item_free(struct peer *p, struct peer_item *item)
{
	peer_region_drop(p, item->region);
	if (item->bulk)
		peer_bulk_release(item->bulk);
	free(item);
}

void peer_enqueue(struct peer *p, struct peer_node *n, struct peer_item *item)
{
	if (!item)
		return;
	struct peer_queue *q = item->bulk ? &n->bulk : &n->queue;

	if (!q->first && n->charged == n->acked)
		n->moved = p->now;
	item->next = NULL;
	*q->last = item;
	q->last = &item->next;
	q->small += item->small + sizeof *item;
	q->large += item->length;
	n->used = p->now;
	peer_due(p, p->now);
}

static void unqueue(struct peer_queue *q)
{
	struct peer_item *item = q->first;

	q->first = item->next;
	if (!q->first)
		q->last = &q->first;
	q->small -= item->small + sizeof *item;
	q->large -= item->length;
	item->next = NULL;
}

static bool fits_window(const struct peer_node *n, const struct peer_item *item, uint64_t more)
{
	uint64_t open = n->charged + more - n->acked;

	return !open || open + peer_cost(item->small, item->length) <= PEER_WINDOW;
}

/* The queue whose first item may go now; a bulk is in nobody's way. */
static struct peer_queue *next_queue(struct peer_node *n, unsigned sends, uint64_t more)
{
	struct peer_item *item = n->queue.first;

	if (item)
		return (!item->length || n->sends + sends < PEER_SENDS) &&
				       fits_window(n, item, more)
			       ? &n->queue
			       : NULL;
	item = n->bulk.first;
	return item && n->bulk_sends + sends < 2 && fits_window(n, item, more) ? &n->bulk : NULL;
}

static int post(struct peer *p, struct peer_node *n, struct peer_op op, const void *from,
		size_t size, int tag)
{
	MPI_Request request;

	if (MPI_Isend(from, (int)size, MPI_BYTE, (int)n->id, tag, p->comm, &request) !=
	    MPI_SUCCESS) {
		peer_doom(p, n, "MPI took no message");
		return -1;
	}
	if (op.kind == PEER_OP_BATCH)
		n->batches++;
	else if (op.items->bulk)
		n->bulk_sends++;
	else
		n->sends++;
	if (peer_ops_add(p, op, request) < 0) {
		MPI_Request_free(&request); /* leaks what it holds */
		peer_doom(p, n, "no memory");
	}
	return 0;
}

static void lose(struct peer *p, struct peer_item *item)
{
	while (item) {
		struct peer_item *next = item->next;
		if (item->tell)
			peer_tell_sent(p, item->token, true);
		peer_item_free(p, item);
		item = next;
	}
}

static size_t put_entry(char *at, const struct peer_item *item)
{
	struct peer_entry e = { .kind = item->kind,
				.small = item->small,
				.length = item->length,
				.key = item->key };

	memcpy(at, &e, sizeof e);
	memset(at + padded(item->small) - 8, 0, item->small ? 8 : 0);
	if (item->small)
		memcpy(at + sizeof e, item->bytes, item->small);
	return padded(item->small);
}

static void send_batch(struct peer *p, struct peer_node *n, bool ask)
{
	char *buffer = malloc(PEER_BATCH);
	struct peer_batch head = { .magic = PEER_MAGIC,
				   .flags = ask ? PEER_ASK : 0,
				   .taken = n->taken };
	struct peer_item *small = NULL, **small_last = &small;
	struct peer_item *large = NULL, **large_last = &large;
	size_t size = sizeof head;
	unsigned sends = 0;
	uint64_t cost = 0;
	struct peer_queue *q;

	if (!buffer)
		return;
	while (!n->dead && (q = next_queue(n, sends, cost))) {
		struct peer_item *item = q->first;
		if (size + padded(item->small) > PEER_BATCH || head.entries == UINT16_MAX)
			break;
		unqueue(q);
		size += put_entry(buffer + size, item);
		head.entries++;
		cost += peer_cost(item->small, item->length);
		struct peer_item ***last = item->length ? &large_last : &small_last;
		**last = item;
		*last = &item->next;
		sends += item->length != 0;
	}
	memcpy(buffer, &head, sizeof head);
	n->charged += cost;
	n->reported = n->taken;
	n->ack_at = 0;
	n->asked = false;
	struct peer_op op = { .kind = PEER_OP_BATCH, .node = n, .buffer = buffer, .items = small };
	if (post(p, n, op, buffer, size, PEER_TAG_HEAD) < 0) {
		free(buffer);
		lose(p, small);
		lose(p, large);
		return;
	}
	n->batches_sent++;
	while (large) {
		struct peer_item *item = large, *rest = item->next;
		item->next = NULL;
		op = (struct peer_op){ .kind = PEER_OP_SEND, .node = n, .items = item };
		if (post(p, n, op, item->data, item->length, PEER_TAG_DATA) < 0) {
			item->next = rest;
			lose(p, item);
			break;
		}
		large = rest;
	}
	if (head.entries)
		n->used = p->now;
	p->active = p->now;
	peer_ring_soon(p, n);
}

void peer_pump(struct peer *p, struct peer_node *n)
{
	while (!n->dead && !n->doomed && n->batches < PEER_BATCHES && next_queue(n, 0, 0))
		send_batch(p, n, false);
}

/* A batch that only says what was taken. */
void peer_send_empty(struct peer *p, struct peer_node *n, bool ask)
{
	if (n->dead || n->doomed || n->batches >= PEER_BATCHES)
		return;
	n->ack_at = 0;
	send_batch(p, n, ask);
}

/* N takes no more: what waits for it is given back. A peer process that lives without its
 * mount process is still told of ends. */
void peer_sends_end(struct peer *p, struct peer_node *n)
{
	struct peer_queue old = n->queue;

	n->queue = (struct peer_queue){ .last = &n->queue.first };
	while (old.first) {
		struct peer_item *item = old.first;
		unqueue(&old);
		if (!n->dead && (item->kind == PEER_DOWN || item->kind == PEER_BYE))
			peer_enqueue(p, n, item);
		else
			lose(p, item);
	}
	lose(p, n->bulk.first);
	n->bulk = (struct peer_queue){ .last = &n->bulk.first };
}
