/* SPDX-License-Identifier: BSD-3-Clause */
/* How the nodes of a job come to agree. */
#include "peers_internal.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"

int clair_peers_hello(struct clair_peers *p, int timeout_ms, uint32_t *node, uint32_t *nodes)
{
	struct timespec deadline = clair_deadline(timeout_ms * CLAIR_NS_PER_MS);

	autolock(&p->lock);
	while (!p->hello && !p->closed)
		if (pthread_cond_timedwait(&p->changed, &p->lock, &deadline) == ETIMEDOUT)
			return -ETIMEDOUT;
	if (p->closed)
		return -EPIPE;
	*node = p->self;
	*nodes = p->count;
	return 0;
}

int clair_peers_send_bulk(struct clair_peers *p, int fd, uint64_t size)
{
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = CLAIR_LINK_BULK,
				      .length = size };

	return p->transport.send(p->transport.self, &f, NULL, fd);
}

int clair_peers_wait_bulk(struct clair_peers *p, int *fd, uint64_t *size)
{
	autolock(&p->lock);
	while (p->bulk < 0 && peers_is_up(p, 0))
		pthread_cond_wait(&p->changed, &p->lock);
	if (p->bulk < 0)
		return -EPIPE;
	*fd = take_fd(p->bulk);
	*size = p->bulk_size;
	return 0;
}

/* Whether all that are up have told. lock */
static bool all_told(const struct clair_peers *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (p->nodes[i].up && !p->nodes[i].info)
			return false;
	return true;
}

static bool same_data(const struct clair_peer_info *a, const struct clair_peer_info *b)
{
	return a->catalog == b->catalog;
}

static bool agrees(const struct clair_peer_info *a, const struct clair_peer_info *b)
{
	return same_data(a, b) && !strcmp(a->order, b->order);
}

static const char *order_of(const struct clair_peer_info *info)
{
	return *info->order ? info->order : "none";
}

/* Node I does not take part beside the lowest one. */
static void leave_out(struct clair_peers *p, uint32_t i, const struct clair_peer_info *first)
{
	const struct clair_peer_info *info = p->nodes[i].info;

	if (!info)
		log_warning("node %u does not answer: going on without it", i);
	else if (!same_data(first, info))
		log_warning("node %u on %s is left out: it sees another dataset (names, sizes or "
			    "times differ)",
			    i, info->host);
	else
		log_warning("node %u on %s is left out: its settings are %s, here they are %s",
			    i, info->host, order_of(info), order_of(first));
	peers_down(p, i);
}

/* This node does not. lock */
static void go_alone(struct clair_peers *p, const struct clair_peer_info *first)
{
	const struct clair_peer_info *own = p->nodes[p->self].info;

	if (!first)
		log_warning("node 0 does not answer: going on without the others");
	else if (!same_data(first, own))
		log_warning("this node differs from node 0: it sees another dataset (names, sizes or "
			    "times differ); going on without the others");
	else
		log_warning("this node differs from node 0: its settings are %s, there they are %s; "
			    "going on without the others",
			    order_of(own), order_of(first));
	for (uint32_t i = 0; i < p->count; i++)
		peers_down(p, i);
	p->left = true;
}

/* All that agree with the lowest node stay. 0, or -EPIPE: we are not among them. lock */
static int agree(struct clair_peers *p)
{
	const struct clair_peer_info *first = NULL;

	for (uint32_t i = 0; i < p->count; i++)
		if (!first && p->nodes[i].up)
			first = p->nodes[i].info;
	if (!first || !agrees(first, p->nodes[p->self].info)) {
		go_alone(p, first);
		return -EPIPE;
	}
	for (uint32_t i = 0; i < p->count; i++)
		if (p->nodes[i].up && (!p->nodes[i].info || !agrees(first, p->nodes[i].info)))
			leave_out(p, i, first);
	return 0;
}

int clair_peers_agree(struct clair_peers *p, const struct clair_peer_info *mine,
		      int timeout_ms)
{
	struct timespec deadline = clair_deadline(timeout_ms * CLAIR_NS_PER_MS);
	struct clair_peer_info *copy = malloc(sizeof *copy);
	size_t size = offsetof(struct clair_peer_info, ranks) +
		      mine->rank_count * sizeof mine->ranks[0];

	if (!copy)
		return -ENOMEM;
	*copy = *mine;
	for (uint32_t i = 0; i < p->count; i++) {
		struct peer_message m = { .kind = P_INFO };
		if (i != p->self)
			peers_send(p, i, &m, mine, size);
	}
	pthread_mutex_lock(&p->lock);
	p->nodes[p->self].info = copy;
	while (!p->closed && !all_told(p))
		if (pthread_cond_timedwait(&p->changed, &p->lock, &deadline) == ETIMEDOUT)
			break;
	int r = p->closed ? -EPIPE : agree(p);
	pthread_mutex_unlock(&p->lock);
	if (r < 0)
		peers_serve_early(p);
	return r;
}

const struct clair_peer_info *clair_peers_info(const struct clair_peers *p, uint32_t node)
{
	struct clair_peers *self = (struct clair_peers *)(uintptr_t)p; /* for its lock */

	autolock(&self->lock);
	if (node >= p->count || (node != p->self && !p->nodes[node].up))
		return NULL;
	return p->nodes[node].info;
}

int clair_peers_share(struct clair_peers *p, uint32_t region, int fd, uint64_t bytes)
{
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = CLAIR_LINK_REGION,
				      .region = region,
				      .length = bytes };

	return p->transport.send(p->transport.self, &f, NULL, fd);
}

void clair_peers_begin(struct clair_peers *p, struct clair_placement *placement,
		       struct clair_pool *pool)
{
	autolock(&p->lock);
	p->pool = pool;
	p->placement = placement;
	p->placement_hash = placement ? clair_placement_hash(placement) : 0;
}
