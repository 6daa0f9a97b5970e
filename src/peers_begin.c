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
		if (p->nodes[i].up && !p->nodes[i].told)
			return false;
	return true;
}

/* What keeps NODE from taking part beside the lowest one; NULL: nothing. */
static const char *differs(const struct clair_peer_info *a, const struct clair_peer_info *b)
{
	if (a->catalog != b->catalog)
		return "it sees another dataset (names, sizes or times differ)";
	if (strcmp(a->order, b->order))
		return "its settings differ";
	return NULL;
}

static void leave_out(struct clair_peers *p, uint32_t i, const struct clair_peer_info *first)
{
	const struct clair_peer_info *info = p->nodes[i].info;
	const char *why = info ? differs(first, info) : NULL;

	if (!info)
		log_warning("node %u does not answer: going on without it", i);
	else if (!strcmp(why, "its settings differ"))
		log_warning("node %u on %s is left out: its settings are %s, here they are %s",
			    i, info->host, *info->order ? info->order : "none",
			    *first->order ? first->order : "none");
	else
		log_warning("node %u on %s is left out: %s", i, info->host, why);
	peers_down(p, i);
}

/* All that agree with the lowest node stay. 0, or -EPIPE: we are not among them. lock */
static int agree(struct clair_peers *p)
{
	const struct clair_peer_info *first = NULL;

	for (uint32_t i = 0; i < p->count; i++)
		if (!first && p->nodes[i].up)
			first = p->nodes[i].info;
	const char *own = first ? differs(first, p->nodes[p->self].info) : NULL;
	if (!first || own) {
		log_warning("this node differs from node 0%s%s: going on without the others%s%s",
			    own ? ": " : "", own ? own : "",
			    own && first && strcmp(first->order, p->nodes[p->self].info->order) ?
				    "; there they are " :
				    "",
			    own && first && strcmp(first->order, p->nodes[p->self].info->order) ?
				    first->order :
				    "");
		for (uint32_t i = 0; i < p->count; i++)
			peers_down(p, i);
		p->left = true;
		return -EPIPE;
	}
	for (uint32_t i = 0; i < p->count; i++)
		if (p->nodes[i].up && (!p->nodes[i].info || differs(first, p->nodes[i].info)))
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
	p->nodes[p->self].told = true;
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
