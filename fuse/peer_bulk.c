/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "peer_internal.h"

/* A memfd to all other nodes: chunks go down a binomial tree whose root is the sender; each
 * node passes a chunk on once it has it. A node that has all tells the root. When a node is
 * down the root sends to those that it would have served. */

static struct peer_bulk *find(struct peer *p, uint32_t root, uint32_t id)
{
	for (struct peer_bulk *b = p->bulks; b; b = b->next)
		if (b->root == root && b->id == id)
			return b;
	return NULL;
}

static uint32_t place_of(const struct peer *p, uint32_t node, uint32_t root)
{
	return (node + p->count - root) % p->count;
}

static uint32_t node_at(const struct peer *p, uint32_t place, uint32_t root)
{
	return (place + root) % p->count;
}

static uint32_t parent_of(const struct peer *p, uint32_t node, uint32_t root)
{
	uint32_t place = place_of(p, node, root);

	return node_at(p, place & (place - 1), root);
}

static void send_chunk(struct peer *p, struct peer_bulk *b, struct peer_node *to,
		       uint64_t offset, uint64_t length)
{
	struct peer_bulk_head head = {
		.root = b->root, .id = b->id, .total = b->total, .offset = offset
	};
	struct peer_item *item = to->down || to->doomed
					 ? NULL
					 : peer_item_new(PEER_CHUNK, &head, sizeof head);

	if (!item)
		return;
	item->length = length;
	item->data = b->base + offset;
	item->bulk = b;
	b->users++;
	peer_enqueue(p, to, item);
}

/* All of it, to a node that another one serves no more. */
static void send_all(struct peer *p, struct peer_bulk *b, struct peer_node *to)
{
	uint64_t offset = 0;

	do {
		uint64_t length = b->total - offset;
		if (length > PEER_BULK_CHUNK)
			length = PEER_BULK_CHUNK;
		send_chunk(p, b, to, offset, length);
		offset += length;
	} while (offset < b->total);
}

static void pass_on(struct peer *p, struct peer_bulk *b, uint64_t offset, uint64_t length)
{
	uint32_t place = place_of(p, p->self, b->root);

	for (uint32_t bit = 1; bit < p->count && !(place & bit); bit <<= 1)
		if (place + bit < p->count)
			send_chunk(p, b, &p->nodes[node_at(p, place + bit, b->root)], offset,
				   length);
}

static void release_if_idle(struct peer_bulk *b)
{
	if (b->users || !b->complete)
		return;
	/* Without its memory it stays in the list: what comes again is known. */
	if (b->base)
		peer_memory_retire(b->base, b->total);
	b->base = NULL;
	if (b->fd >= 0)
		close(b->fd);
	b->fd = -1;
	free(b->done);
	b->done = NULL;
}

void peer_bulk_release(struct peer_bulk *b)
{
	b->users--;
	release_if_idle(b);
}

static int map_bulk(struct peer_bulk *b)
{
	if (!b->total)
		return 0;
	void *base = mmap(NULL, b->total, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (base == MAP_FAILED)
		base = mmap(NULL, b->total, PROT_READ, MAP_SHARED, b->fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	b->base = base;
	return 0;
}

/* The root has served all that live. */
static void check_served(struct peer *p, struct peer_bulk *b)
{
	if (b->root != p->self || b->complete)
		return;
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && !(b->done[i] & 1) && !p->nodes[i].down)
			return;
	b->complete = true;
	release_if_idle(b);
}

int peer_bulk_start(struct peer *p, uint64_t total, int fd)
{
	struct stat st;
	struct peer_bulk *b;

	if (total > PEER_BULK_MAX || fstat(fd, &st) < 0 || st.st_size < 0 ||
	    (uint64_t)st.st_size < total)
		return -EINVAL;
	b = calloc(1, sizeof *b);
	if (!b)
		return -ENOMEM;
	*b = (struct peer_bulk){ .root = p->self, .total = total, .have = total, .fd = fd };
	b->done = calloc(p->count, 1);
	if (!b->done || map_bulk(b) < 0) {
		free(b->done);
		free(b);
		return -ENOMEM;
	}
	b->id = p->bulk_ids++;
	b->next = p->bulks;
	p->bulks = b;
	uint64_t offset = 0;
	do {
		uint64_t length = total - offset;
		if (length > PEER_BULK_CHUNK)
			length = PEER_BULK_CHUNK;
		pass_on(p, b, offset, length);
		offset += length;
	} while (offset < total);
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && p->nodes[i].down)
			peer_bulk_node_down(p, &p->nodes[i]);
	check_served(p, b);
	return 0;
}

static struct peer_bulk *begin(struct peer *p, const struct peer_bulk_head *h)
{
	struct peer_bulk *b = calloc(1, sizeof *b);

	if (!b)
		return NULL;
	*b = (struct peer_bulk){ .root = h->root, .id = h->id, .total = h->total };
	b->fd = memfd_create("clairfs-bulk", MFD_CLOEXEC);
	if (b->fd < 0 || ftruncate(b->fd, (off_t)b->total) < 0 || map_bulk(b) < 0) {
		if (b->fd >= 0)
			close(b->fd);
		free(b);
		return NULL;
	}
	b->next = p->bulks;
	p->bulks = b;
	return b;
}

/* Whether N may send this: the node above in the tree, or the root itself. */
static bool chunk_ok(struct peer *p, const struct peer_node *n, const struct peer_bulk_head *h,
		     uint64_t length)
{
	if (h->root < p->count && h->root != p->self && h->total <= PEER_BULK_MAX &&
	    length <= h->total && h->offset <= h->total - length &&
	    (length || !h->total) &&
	    (n->id == h->root || n->id == parent_of(p, p->self, h->root)))
		return true;
	peer_garbage(p, n, "a part of a bulk");
	return false;
}

char *peer_bulk_room(struct peer *p, const struct peer_node *n, struct peer_incoming *in)
{
	struct peer_bulk_head h;
	struct peer_bulk *b;

	memcpy(&h, in->bytes, sizeof h);
	if (!chunk_ok(p, n, &h, in->length))
		return NULL;
	b = find(p, h.root, h.id);
	if (!b && h.offset == 0)
		b = begin(p, &h);
	/* Chunks that come again, when another node took over: have is what was received,
	 * and from one node they come in order. Several are on their way at a time. */
	if (!b || !b->base || b->complete || b->total != h.total || h.offset < b->have)
		return NULL;
	in->bulk = b;
	b->users++;
	return b->base + h.offset;
}

static void completed(struct peer *p, struct peer_bulk *b)
{
	struct peer_bulk_head h = { .root = b->root, .id = b->id, .total = b->total };
	int fd = dup(b->fd);

	b->complete = true;
	if (fd >= 0)
		peer_tell(p,
			  (struct clair_link_frame){ .kind = CLAIR_LINK_BULKED,
						     .node = b->root,
						     .length = b->total },
			  NULL, fd);
	if (!p->nodes[b->root].dead)
		peer_enqueue(p, &p->nodes[b->root], peer_item_new(PEER_DONE, &h, sizeof h));
}

void peer_bulk_took(struct peer *p, const struct peer_node *n, struct peer_incoming *in)
{
	struct peer_bulk_head h;
	struct peer_bulk *b = in->bulk;

	memcpy(&h, in->bytes, sizeof h);
	if (!in->length && chunk_ok(p, n, &h, 0) && !find(p, h.root, h.id))
		b = begin(p, &h);
	if (!b || in->lost || b->complete || h.offset != b->have)
		return;
	b->users++;
	b->have += in->length;
	pass_on(p, b, h.offset, in->length);
	if (b->have == b->total)
		completed(p, b);
	peer_bulk_release(b);
}

void peer_bulk_done(struct peer *p, struct peer_node *n, const struct peer_incoming *in)
{
	struct peer_bulk_head h;

	memcpy(&h, in->bytes, sizeof h);
	struct peer_bulk *b = h.root == p->self ? find(p, h.root, h.id) : NULL;
	if (!b || !b->done)
		return;
	b->done[n->id] |= 1;
	check_served(p, b);
}

void peer_bulk_node_down(struct peer *p, struct peer_node *n)
{
	for (struct peer_bulk *b = p->bulks; b; b = b->next) {
		if (b->complete)
			continue;
		if (b->root != p->self) {
			if (b->root == n->id) { /* nobody will bring the rest */
				b->complete = true;
				release_if_idle(b);
			}
			continue;
		}
		b->users++;
		for (uint32_t i = 0; i < p->count; i++)
			if (i != p->self && !b->done[i] && !p->nodes[i].down &&
			    parent_of(p, i, b->root) == n->id) {
				b->done[i] = 2;
				send_all(p, b, &p->nodes[i]);
			}
		check_served(p, b);
		peer_bulk_release(b);
	}
}

/* Its silence would keep a bulk from its end. */
bool peer_bulk_waits_for(struct peer *p, const struct peer_node *n)
{
	for (struct peer_bulk *b = p->bulks; b; b = b->next) {
		if (b->complete)
			continue;
		if (b->root == p->self ? !(b->done[n->id] & 1) : b->root == n->id)
			return true;
	}
	return false;
}
