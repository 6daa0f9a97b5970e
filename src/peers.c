/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames in, messages out, who is there. */
#include "peers_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"

int clair_peers_new(const struct clair_transport *transport, struct clair_stats *stats,
		    struct clair_peers **out)
{
	struct clair_peers *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	p->transport = *transport;
	p->stats = stats;
	p->bulk = -1;
	p->early_last = &p->early;
	p->requests = calloc(SLOTS, sizeof *p->requests);
	p->answers = calloc(SLOTS, sizeof *p->answers);
	pthread_mutex_init(&p->lock, NULL);
	clair_cond_init(&p->changed);
	if (!p->requests || !p->answers) {
		clair_peers_free(p);
		return -ENOMEM;
	}
	*out = p;
	return 0;
}

void clair_peers_free(struct clair_peers *p)
{
	if (!p)
		return;
	if (p->requests && p->answers)
		peers_end_all(p);
	while (p->early) {
		struct early *e = p->early;
		p->early = e->next;
		free(e);
	}
	for (uint32_t i = 0; p->requests && i < SLOTS; i++)
		if (p->requests[i].has_cond)
			pthread_cond_destroy(&p->requests[i].done);
	for (uint32_t i = 0; i < p->count; i++) {
		free(p->nodes[i].info);
		free(p->nodes[i].status);
	}
	if (p->bulk >= 0)
		close(p->bulk);
	free(p->nodes);
	free(p->alive);
	free(p->requests);
	free(p->answers);
	clair_placement_free(p->placement);
	pthread_cond_destroy(&p->changed);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

void clair_peers_set_server(struct clair_peers *p, const struct clair_peers_server *server)
{
	pthread_mutex_lock(&p->lock);
	p->server = *server;
	pthread_mutex_unlock(&p->lock);
	if (server->get)
		peers_serve_early(p);
}

/* Threads that bring frames use what the stage owns: leaving waits until they are through. */
static void come(struct clair_peers *p)
{
	pthread_mutex_lock(&p->lock);
	p->calling++;
	pthread_mutex_unlock(&p->lock);
}

static void go(struct clair_peers *p)
{
	pthread_mutex_lock(&p->lock);
	if (--p->calling == 0 && p->left)
		pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
}

void clair_peers_stop_asking(struct clair_peers *p)
{
	autolock(&p->lock);
	p->silent = true;
	for (uint32_t i = 0; i < p->count; i++)
		peers_fail_requests(p, i);
	pthread_cond_broadcast(&p->changed);
}

void clair_peers_leave(struct clair_peers *p)
{
	clair_peers_stop_asking(p);
	pthread_mutex_lock(&p->lock);
	p->server = (struct clair_peers_server){ .self = p->server.self, .end = p->server.end };
	p->left = true;
	while (p->calling)
		pthread_cond_wait(&p->changed, &p->lock);
	pthread_mutex_unlock(&p->lock);
	peers_serve_early(p);
	peers_end_all(p);
}

void peers_stamp(const struct clair_peers *p, struct peer_message *m)
{
	m->version = MESSAGE_VERSION;
	m->ram = atomic_load_explicit(&p->ram, memory_order_relaxed);
	m->cache = atomic_load_explicit(&p->cache, memory_order_relaxed);
	m->loads = atomic_load_explicit(&p->loads, memory_order_relaxed);
}

int peers_send(struct clair_peers *p, uint32_t node, struct peer_message *m,
	       const void *text, size_t size)
{
	struct clair_link_frame frame = { .version = CLAIR_LINK_VERSION,
					  .kind = CLAIR_LINK_SEND,
					  .node = node };
	unsigned char small[CLAIR_LINK_SMALL];

	if (sizeof *m + size > sizeof small)
		return -EMSGSIZE;
	peers_stamp(p, m);
	if (text)
		m->length = (uint32_t)size;
	memcpy(small, m, sizeof *m);
	if (size)
		memcpy(small + sizeof *m, text, size);
	frame.small = (uint32_t)(sizeof *m + size);
	return p->transport.send(p->transport.self, &frame, small, -1);
}

bool peers_is_up(const struct clair_peers *p, uint32_t node)
{
	return node < p->count && !p->closed && p->nodes[node].up;
}

void peers_down(struct clair_peers *p, uint32_t node)
{
	if (node >= p->count || !p->nodes[node].up || node == p->self)
		return;
	p->nodes[node].up = false;
	if (p->nodes[node].loads)
		atomic_fetch_sub(&p->loading, 1);
	p->nodes[node].loads = 0;
	p->alive[node / 64] &= ~(1ull << node % 64);
	atomic_store(&p->degraded, true);
	peers_fail_requests(p, node);
	pthread_cond_broadcast(&p->changed);
}

/* --- frames ------------------------------------------------------------------------ */

static void got_hello(struct clair_peers *p, const struct clair_link_frame *f)
{
	autolock(&p->lock);
	if (p->hello || !f->token || f->token > CLAIR_MAX_NODES || f->node >= f->token)
		return;
	p->nodes = calloc(f->token, sizeof *p->nodes);
	p->alive = calloc(f->token / 64 + 1, sizeof *p->alive);
	if (!p->nodes || !p->alive)
		return; /* hello times out */
	p->self = f->node;
	p->count = (uint32_t)f->token;
	for (uint32_t i = 0; i < p->count; i++) {
		p->nodes[i].up = true;
		p->alive[i / 64] |= 1ull << i % 64;
	}
	p->hello = true;
	pthread_cond_broadcast(&p->changed);
}

static void got_info(struct clair_peers *p, uint32_t node, const void *text, size_t size)
{
	struct clair_peer_info *info = calloc(1, sizeof *info);
	size_t head = offsetof(struct clair_peer_info, ranks);

	if (!info || size < head || size > sizeof *info) {
		free(info);
		return;
	}
	memcpy(info, text, size);
	info->host[sizeof info->host - 1] = '\0';
	info->order[sizeof info->order - 1] = '\0';
	if (info->rank_count > (size - head) / sizeof info->ranks[0])
		info->rank_count = (uint32_t)((size - head) / sizeof info->ranks[0]);
	autolock(&p->lock);
	if (p->nodes[node].info) { /* readers may look at the first one */
		free(info);
		return;
	}
	p->nodes[node].info = info;
	pthread_cond_broadcast(&p->changed);
}

static void got_status(struct clair_peers *p, uint32_t node, uint64_t request,
		       const char *text, size_t size)
{
	autolock(&p->lock);
	if (request != p->status_request || p->nodes[node].status)
		return;
	p->nodes[node].status = strndup(text, size);
	pthread_cond_broadcast(&p->changed);
}

static void say_status(struct clair_peers *p, const struct clair_peers_server *server,
		       uint32_t node, uint64_t request)
{
	struct peer_message m = { .kind = P_STATUS, .request = request };
	autofree char *text = server->status ? server->status(server->self) : NULL;
	size_t size = text ? strlen(text) : 0;

	if (size > CLAIR_LINK_SMALL - sizeof m)
		size = 0;
	peers_send(p, node, &m, text ? text : "", size);
}

static void got_message(struct clair_peers *p, const struct clair_link_frame *f,
			const void *small)
{
	struct peer_message m;
	struct clair_peers_server server;
	const char *text = (const char *)small + sizeof m;

	if (f->length && !(f->flags & CLAIR_LINK_LOST))
		peers_got_landed(p, f);
	if (f->small < sizeof m)
		goto garbage;
	memcpy(&m, small, sizeof m);
	size_t size = f->small - sizeof m;
	if (m.version != MESSAGE_VERSION)
		goto garbage;
	pthread_mutex_lock(&p->lock);
	server = p->server;
	if (!p->hello || f->node >= p->count || f->node == p->self) {
		pthread_mutex_unlock(&p->lock);
		goto garbage;
	}
	struct node *n = &p->nodes[f->node];
	n->heard = clair_now_ns();
	n->slow_ns = 0;
	n->ram = m.ram;
	n->cache = m.cache;
	if (!n->loads != !m.loads)
		atomic_fetch_add(&p->loading, m.loads ? 1u : -1u);
	n->loads = m.loads;
	pthread_mutex_unlock(&p->lock);
	switch (m.kind) {
	case P_INFO:
		got_info(p, f->node, text, size);
		return;
	case P_GET:
		peers_got_get(p, &server, (uint16_t)f->node, &m);
		return;
	case P_COMING:
		peers_got_coming(p, (uint16_t)f->node, m.request);
		return;
	case P_DATA:
		peers_got_data(p, f, &m);
		return;
	case P_FOUND: {
		autofree char *copy = strndup(text, size);
		if (server.found && copy)
			server.found(server.self, m.id, copy);
		return;
	}
	case P_ASK:
		say_status(p, &server, f->node, m.request);
		return;
	case P_STATUS:
		got_status(p, f->node, m.request, text, size);
		return;
	case P_DONE:
		pthread_mutex_lock(&p->lock);
		n->done = true;
		pthread_mutex_unlock(&p->lock);
		return;
	}
garbage:
	clair_count(&p->stats->error_peer, 1);
	log_debug("node %u sent what is no message", f->node);
}

/* A silent node is up again, with all that it kept. lock */
static void back(struct clair_peers *p, uint32_t node)
{
	struct node *n = &p->nodes[node];
	bool degraded = false;

	n->silent = false;
	n->up = true;
	n->slow_until = n->slow_ns = 0;
	p->alive[node / 64] |= 1ull << node % 64;
	for (uint32_t i = 0; i < p->count; i++)
		degraded = degraded || !p->nodes[i].up;
	atomic_store(&p->degraded, degraded);
	pthread_cond_broadcast(&p->changed);
	log_warning("node %u on %s answers again", node, n->info ? n->info->host : "");
}

/* Silence counts once all have agreed: before it a node that was left out could come back. */
static void got_state(struct clair_peers *p, uint32_t node, uint32_t flags)
{
	autolock(&p->lock);
	if (node >= p->count || p->closed || node == p->self)
		return;
	struct node *n = &p->nodes[node];
	bool dead = flags & CLAIR_LINK_DEAD, silent = flags & CLAIR_LINK_SILENT;
	if (n->silent && !silent) {
		n->silent = false;
		if (dead)
			log_warning("node %u is gone for good", node);
		else
			back(p, node);
		return;
	}
	if (!n->up || !(dead || (silent && p->placement)))
		return;
	if (!p->byed)
		log_warning("node %u%s%s %s: what it kept comes from the source, and finds "
			    "new homes",
			    node, n->info ? " on " : "", n->info ? n->info->host : "",
			    dead ? "is gone" : "does not answer");
	peers_down(p, node);
	n->silent = !dead;
}

static void take_frame(struct clair_peers *p, const struct clair_link_frame *f,
		       const void *small, int fd)
{
	struct clair_peers_server server;
	autoclose int taken = fd;

	if (f->version != CLAIR_LINK_VERSION)
		return;
	switch (f->kind) {
	case CLAIR_LINK_HELLO:
		got_hello(p, f);
		break;
	case CLAIR_LINK_MESSAGE:
		got_message(p, f, small);
		break;
	case CLAIR_LINK_SENT:
		peers_got_sent(p, f);
		break;
	case CLAIR_LINK_UNLANDED:
		peers_got_unlanded(p, f->key);
		break;
	case CLAIR_LINK_STATE:
		got_state(p, f->node, f->flags);
		break;
	case CLAIR_LINK_BULKED: {
		autolock(&p->lock);
		if (p->bulk < 0) {
			p->bulk = take_fd(taken);
			p->bulk_size = f->length;
		}
		pthread_cond_broadcast(&p->changed);
		break;
	}
	case CLAIR_LINK_END:
		pthread_mutex_lock(&p->lock);
		server = p->server;
		p->byed = true;
		pthread_mutex_unlock(&p->lock);
		if (server.end)
			server.end(server.self);
		break;
	default:
		break;
	}
}

void clair_peers_frame(struct clair_peers *p, const struct clair_link_frame *f,
		       const void *small, int fd)
{
	come(p);
	take_frame(p, f, small, fd);
	go(p);
}

void clair_peers_closed(struct clair_peers *p)
{
	pthread_mutex_lock(&p->lock);
	p->calling++;
	bool others = p->count > 1 && !p->byed && !p->closed;
	for (uint32_t i = 0; i < p->count; i++) {
		peers_down(p, i);
		p->nodes[i].silent = false;
	}
	p->closed = true;
	pthread_cond_broadcast(&p->changed);
	pthread_mutex_unlock(&p->lock);
	peers_end_all(p);
	go(p);
	if (others)
		log_warning("the peer process is gone: going on without the other nodes");
}

void clair_peers_bye(struct clair_peers *p)
{
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION, .kind = CLAIR_LINK_BYE };

	pthread_mutex_lock(&p->lock);
	bool already = p->byed || p->closed;
	p->byed = true;
	pthread_mutex_unlock(&p->lock);
	if (!already)
		p->transport.send(p->transport.self, &f, NULL, -1);
}

/* --- who keeps what ------------------------------------------------------------------ */

uint32_t clair_peers_self(const struct clair_peers *p)
{
	return p->self;
}

uint16_t clair_peers_home(const struct clair_peers *p, uint32_t id)
{
	if (!p->placement)
		return CLAIR_NO_NODE;
	if (!atomic_load_explicit(&p->degraded, memory_order_acquire))
		return clair_placement_home(p->placement, id);
	struct clair_peers *self = (struct clair_peers *)(uintptr_t)p; /* for its lock */
	autolock(&self->lock);
	return clair_placement_home_among(p->placement, id, p->alive);
}

bool clair_peers_keeps(const struct clair_peers *p, uint32_t id)
{
	return clair_peers_home(p, id) == p->self ||
	       (p->placement && clair_placement_copy(p->placement, id));
}

bool clair_peers_done(struct clair_peers *p)
{
	bool all = true;

	pthread_mutex_lock(&p->lock);
	bool first = p->hello && !p->nodes[p->self].done;
	if (first)
		p->nodes[p->self].done = true;
	for (uint32_t i = 0; i < p->count; i++)
		all = all && (p->nodes[i].done || !peers_is_up(p, i));
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; first && i < p->count; i++) {
		struct peer_message m = { .kind = P_DONE };
		if (i != p->self)
			peers_send(p, i, &m, NULL, 0);
	}
	return all;
}

void clair_peers_tell_found(struct clair_peers *p, uint32_t folder, const char *text)
{
	for (uint32_t i = 0; i < p->count; i++) {
		struct peer_message m = { .kind = P_FOUND, .id = folder };
		pthread_mutex_lock(&p->lock);
		bool up = i != p->self && peers_is_up(p, i);
		pthread_mutex_unlock(&p->lock);
		if (up)
			peers_send(p, i, &m, text, strlen(text));
	}
}
