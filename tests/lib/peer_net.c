/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer_net.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "peers_internal.h"

/* A frame on its way to a node. */
struct net_item {
	struct net_item *next;
	int64_t due;
	uint32_t from; /* NET_NODES: the node's own peer process */
	struct clair_link_frame frame;
	unsigned char *small;
	int fd;
	bool tell; /* its sender waits for SENT, of token */
	bool corrupt;
	uint64_t token;
	uint32_t region; /* of the sender: where the payload is */
	uint64_t offset;
};

struct net_landing {
	struct net_landing *next;
	uint64_t key, offset, length;
	uint32_t region;
};

static void free_item(struct net_item *it)
{
	if (it->fd >= 0)
		close(it->fd);
	free(it->small);
	free(it);
}

/* --- queues: lock ---------------------------------------------------------------------- */

static void insert(struct net_node *n, struct net_item *it)
{
	struct net_item **p = &n->items;

	if (n->dead) {
		free_item(it);
		return;
	}
	while (*p && (*p)->due <= it->due)
		p = &(*p)->next;
	it->next = *p;
	*p = it;
	n->waiting++;
	pthread_cond_signal(&n->changed);
}

/* A frame of the node's own peer process. FD is copied. */
static void tell(struct net_node *n, const struct clair_link_frame *frame, int fd)
{
	struct net_item *it = calloc(1, sizeof *it);

	assert(it);
	it->from = NET_NODES;
	it->frame = *frame;
	it->frame.version = CLAIR_LINK_VERSION;
	it->fd = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
	it->due = clair_now_ns();
	insert(n, it);
}

static void tell_sent(struct net *net, const struct net_item *it, uint32_t flags)
{
	if (it->tell)
		tell(&net->nodes[it->from],
		     &(struct clair_link_frame){ .kind = CLAIR_LINK_SENT,
						 .flags = flags,
						 .token = it->token },
		     -1);
}

static bool hits(struct net *net, unsigned share)
{
	return (unsigned)rand_r(&net->seed) % 1000 < share;
}

static void queue_message(struct net *net, struct net_node *from, struct net_item *it)
{
	struct net_node *to = &net->nodes[it->frame.node];
	unsigned delay = net->faults.delay_us;

	it->due = clair_now_ns() + (delay ? rand_r(&net->seed) % delay * 1000LL : 0);
	if (it->due < to->last_due[from->number])
		it->due = to->last_due[from->number];
	to->last_due[from->number] = it->due;
	it->frame.node = from->number;
	insert(to, it);
}

static struct net_item *copy_item(const struct net_item *it)
{
	struct net_item *copy = malloc(sizeof *copy);

	assert(copy);
	*copy = *it;
	copy->tell = false;
	copy->small = malloc(it->frame.small + 1);
	assert(copy->small);
	memcpy(copy->small, it->small, it->frame.small);
	return copy;
}

static void send_message(struct net *net, struct net_node *from,
			 const struct clair_link_frame *f, const void *small)
{
	const struct net_faults *faults = &net->faults;
	struct net_item *it = calloc(1, sizeof *it);
	uint16_t kind = 0;

	assert(it && f->node < net->count && f->small <= CLAIR_LINK_SMALL &&
	       f->length <= CLAIR_LINK_PAYLOAD);
	it->from = from->number;
	it->fd = -1;
	it->tell = f->token;
	it->token = f->token;
	it->region = f->region;
	it->offset = f->offset;
	it->frame = (struct clair_link_frame){ .version = CLAIR_LINK_VERSION,
					       .kind = CLAIR_LINK_MESSAGE,
					       .node = f->node,
					       .small = f->small,
					       .length = f->length,
					       .key = f->key };
	it->small = malloc(f->small + 1);
	assert(it->small);
	memcpy(it->small, small, f->small);
	if (f->small >= sizeof(struct peer_message))
		memcpy(&kind, it->small + offsetof(struct peer_message, kind), sizeof kind);
	net->sent[kind % 16]++;
	bool faulty = !faults->kinds || faults->kinds & 1u << kind % 16;
	bool lost = faulty && hits(net, faults->lose);
	if (lost || net->nodes[f->node].dead) {
		tell_sent(net, it, lost ? 0 : CLAIR_LINK_DEAD);
		free_item(it);
		return;
	}
	if (faulty && hits(net, faults->truncate))
		it->frame.small = f->small ? (uint32_t)rand_r(&net->seed) % f->small : 0;
	it->corrupt = faulty && hits(net, faults->corrupt);
	struct net_item *twice = faulty && hits(net, faults->duplicate) ? copy_item(it) : NULL;
	queue_message(net, from, it);
	if (twice)
		queue_message(net, from, twice);
}

/* --- what a mount process sends ---------------------------------------------------------- */

static int map_region(struct net_node *n, const struct clair_link_frame *f, int fd)
{
	assert(f->region < 2 && !n->regions[f->region].base);
	void *base = mmap(NULL, f->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	n->regions[f->region].base = base;
	n->regions[f->region].length = f->length;
	return 0;
}

/* The landing of KEY, out of the table; NULL: none. lock */
static struct net_landing *take_landing(struct net_node *n, uint64_t key)
{
	struct net_landing **p = &n->landings, *l;

	while (*p && (*p)->key != key)
		p = &(*p)->next;
	l = *p;
	if (l)
		*p = l->next;
	return l;
}

static void land(struct net_node *n, const struct clair_link_frame *f)
{
	struct net_landing *l = calloc(1, sizeof *l);

	assert(l && n->regions[f->region].base &&
	       f->offset + f->length <= n->regions[f->region].length);
	*l = (struct net_landing){ n->landings, f->key, f->offset, f->length, f->region };
	n->landings = l;
}

static int net_send(void *self, const struct clair_link_frame *f, const void *small, int fd)
{
	struct net_node *n = self;
	struct net *net = n->net;
	struct net_landing *l;

	autolock(&net->lock);
	if (n->dead)
		return -EPIPE;
	switch (f->kind) {
	case CLAIR_LINK_REGION:
		return map_region(n, f, fd);
	case CLAIR_LINK_SEND:
		send_message(net, n, f, small);
		return 0;
	case CLAIR_LINK_LAND:
		land(n, f);
		return 0;
	case CLAIR_LINK_UNLAND:
		l = take_landing(n, f->key);
		if (l)
			tell(n, &(struct clair_link_frame){ .kind = CLAIR_LINK_UNLANDED,
							    .key = f->key }, -1);
		free(l);
		return 0;
	case CLAIR_LINK_BULK:
		for (unsigned i = 0; i < net->count; i++)
			if (i != n->number)
				tell(&net->nodes[i],
				     &(struct clair_link_frame){ .kind = CLAIR_LINK_BULKED,
								 .node = n->number,
								 .length = f->length }, fd);
		return 0;
	case CLAIR_LINK_BYE:
		for (unsigned i = 0; i < net->count; i++)
			if (i != n->number)
				tell(&net->nodes[i],
				     &(struct clair_link_frame){ .kind = CLAIR_LINK_END }, -1);
		return 0;
	default:
		abort();
	}
}

/* --- what it gets -------------------------------------------------------------------------- */

/* The payload of IT lands, or is thrown away. */
static void land_payload(struct net_node *n, struct net_item *it)
{
	struct net *net = n->net;
	struct net_node *from = &net->nodes[it->from];

	pthread_mutex_lock(&net->lock);
	struct net_landing *l = take_landing(n, it->frame.key);
	if (l && l->length < it->frame.length) {
		l->next = n->landings;
		n->landings = l;
		l = NULL;
	}
	const unsigned char *bytes = from->regions[it->region].base + it->offset;
	if (l)
		assert(it->offset + it->frame.length <= from->regions[it->region].length);
	else
		n->lost_payloads++;
	pthread_mutex_unlock(&net->lock);
	if (!l) {
		it->frame.flags |= CLAIR_LINK_LOST;
		return;
	}
	unsigned char *room = n->regions[l->region].base + l->offset;
	memcpy(room, bytes, it->frame.length);
	if (it->corrupt)
		room[it->frame.length / 2] ^= 0x10;
	free(l);
}

static void pass(struct net_node *n, struct net_item *it)
{
	struct net *net = n->net;

	if (it->frame.kind == CLAIR_LINK_MESSAGE && it->frame.length)
		land_payload(n, it);
	clair_peers_frame(n->peers, &it->frame, it->small, take_fd(it->fd));
	pthread_mutex_lock(&net->lock);
	n->delivered++;
	tell_sent(net, it, 0);
	pthread_mutex_unlock(&net->lock);
	free_item(it);
}

/* The next item that N takes, out of its queue, or NULL and when to look again. lock */
static struct net_item *next_item(struct net_node *n, int64_t *when)
{
	int64_t now = clair_now_ns();
	struct net_item **p = &n->items, *it;

	*when = now + CLAIR_NS_PER_S;
	while (*p && n->stuck && (*p)->from != NET_NODES)
		p = &(*p)->next;
	it = *p;
	if (!it)
		return NULL;
	if (it->due > now) {
		*when = it->due;
		return NULL;
	}
	*p = it->next;
	n->waiting--;
	return it;
}

static void *deliver(void *arg)
{
	struct net_node *n = arg;
	struct net *net = n->net;
	int64_t when;

	pthread_mutex_lock(&net->lock);
	while (!net->over) {
		if (n->dead && !n->closed) {
			pthread_mutex_unlock(&net->lock);
			clair_peers_closed(n->peers);
			pthread_mutex_lock(&net->lock);
			n->closed = true;
			pthread_cond_broadcast(&n->changed);
			continue;
		}
		struct net_item *it = next_item(n, &when);
		if (it) {
			pthread_mutex_unlock(&net->lock);
			pass(n, it);
			pthread_mutex_lock(&net->lock);
			continue;
		}
		struct timespec t = { when / CLAIR_NS_PER_S, when % CLAIR_NS_PER_S };
		pthread_cond_timedwait(&n->changed, &net->lock, &t);
	}
	pthread_mutex_unlock(&net->lock);
	return NULL;
}

/* --- faults -------------------------------------------------------------------------------- */

void net_set_faults(struct net *net, const struct net_faults *faults)
{
	autolock(&net->lock);
	net->faults = *faults;
}

void net_set_stuck(struct net *net, uint32_t node, bool stuck)
{
	autolock(&net->lock);
	net->nodes[node].stuck = stuck;
	pthread_cond_broadcast(&net->nodes[node].changed);
}

/* What NODE had sent and did not arrive, does not. lock */
static void drop_from(struct net_node *n, uint32_t node)
{
	for (struct net_item **p = &n->items; *p;) {
		struct net_item *it = *p;
		if (it->from != node) {
			p = &it->next;
			continue;
		}
		*p = it->next;
		n->waiting--;
		free_item(it);
	}
}

void net_kill(struct net *net, uint32_t node)
{
	struct net_node *n = &net->nodes[node];

	autolock(&net->lock);
	if (n->dead)
		return;
	n->dead = true;
	while (n->items) {
		struct net_item *it = n->items;
		n->items = it->next;
		n->waiting--;
		if (it->from != NET_NODES)
			tell_sent(net, it, CLAIR_LINK_DEAD);
		free_item(it);
	}
	for (unsigned i = 0; i < net->count; i++) {
		if (i == node)
			continue;
		drop_from(&net->nodes[i], node);
		tell(&net->nodes[i],
		     &(struct clair_link_frame){ .kind = CLAIR_LINK_STATE,
						 .flags = CLAIR_LINK_DEAD,
						 .node = node }, -1);
	}
	pthread_cond_broadcast(&n->changed);
}

void net_await_closed(struct net *net, uint32_t node)
{
	struct net_node *n = &net->nodes[node];

	autolock(&net->lock);
	while (!n->closed)
		pthread_cond_wait(&n->changed, &net->lock);
}

void net_tell(struct net *net, uint32_t node, const struct clair_link_frame *frame)
{
	autolock(&net->lock);
	tell(&net->nodes[node], frame, -1);
}

uint64_t net_sent(struct net *net, unsigned kind)
{
	autolock(&net->lock);
	return net->sent[kind];
}

unsigned net_waiting(struct net *net, uint32_t node)
{
	autolock(&net->lock);
	return net->nodes[node].waiting;
}

/* --- the net ------------------------------------------------------------------------------- */

void net_begin(struct net *net, unsigned count, struct clair_stats *const *stats)
{
	pthread_condattr_t attr;

	assert(count <= NET_NODES);
	memset(net, 0, sizeof *net);
	net->count = count;
	net->seed = 1;
	pthread_mutex_init(&net->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	for (unsigned i = 0; i < count; i++) {
		struct net_node *n = &net->nodes[i];
		struct clair_transport transport = { n, net_send };

		n->net = net;
		n->number = i;
		n->stats = stats[i];
		pthread_cond_init(&n->changed, &attr);
		int r = clair_peers_new(&transport, stats[i], &n->peers);
		assert(r == 0);
		tell(n, &(struct clair_link_frame){ .kind = CLAIR_LINK_HELLO,
						    .node = i,
						    .token = count }, -1);
	}
	pthread_condattr_destroy(&attr);
	for (unsigned i = 0; i < count; i++)
		pthread_create(&net->nodes[i].thread, NULL, deliver, &net->nodes[i]);
}

static void finish_node(struct net_node *n)
{
	while (n->items) {
		struct net_item *it = n->items;
		n->items = it->next;
		free_item(it);
	}
	while (n->landings) {
		struct net_landing *l = n->landings;
		n->landings = l->next;
		free(l);
	}
	for (size_t i = 0; i < 2; i++)
		if (n->regions[i].base)
			munmap(n->regions[i].base, n->regions[i].length);
	pthread_cond_destroy(&n->changed);
}

void net_end(struct net *net)
{
	pthread_mutex_lock(&net->lock);
	net->over = true;
	for (unsigned i = 0; i < net->count; i++)
		pthread_cond_broadcast(&net->nodes[i].changed);
	pthread_mutex_unlock(&net->lock);
	for (unsigned i = 0; i < net->count; i++)
		pthread_join(net->nodes[i].thread, NULL);
	for (unsigned i = 0; i < net->count; i++)
		clair_peers_free(net->nodes[i].peers);
	for (unsigned i = 0; i < net->count; i++)
		finish_node(&net->nodes[i]);
	pthread_mutex_destroy(&net->lock);
}
