/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes of samples: asked for, and answered. */
#include "peers_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "cleanup.h"
#include "log.h"
#include "model.h"

/* A node from which nothing is heard for this long, while it is asked, is slow: what it has
 * comes from the source for a while. Short enough that readers hardly notice. */
#define SILENCE_NS (3 * CLAIR_NS_PER_S / 2)
#define SLOW_NS (3 * CLAIR_NS_PER_S)
#define PATIENCE_NS (5 * CLAIR_NS_PER_S) /* in all, when it says that it is fetching */
#define OUTSTANDING 64u                  /* requests to one node */
#define MEASURED_BYTES (1u << 20)        /* before a node's bandwidth is believed */
#define BATCH_NS (100 * CLAIR_NS_PER_MS) /* between looks at the clock */
/* Answers, or word that they are coming, come in the order of the requests: when those of later
 * ones have been there for this long, a request or its answer was lost. */
#define OVERTAKEN_NS (500 * CLAIR_NS_PER_MS)
#define SLOW_MOST_NS (60 * CLAIR_NS_PER_S)
#define EARLY_MOST 4096u
/* A node crawls when what it gave in WINDOW_NS is so little that what waits for it would take more
 * than CRAWL_S seconds (a busy one gives that in one); then nobody waits longer than CRAWL_NS. */
#define WINDOW_NS (500 * CLAIR_NS_PER_MS)
#define CRAWL_NS (3 * CLAIR_NS_PER_S / 4)
#define CRAWL_AGAIN_NS (CRAWL_NS / 4)         /* who asks one that did lately */
#define CRAWL_LATELY_NS (10 * CLAIR_NS_PER_S)
#define CRAWL_S 6.0
#define CRAWL_RATE 1000.0 /* bytes/s at least: 0 is not known */

static struct request *find(struct clair_peers *p, uint64_t key)
{
	struct request *q = &p->requests[key % SLOTS];

	return q->state != R_FREE && q->key == key ? q : NULL;
}

/* The room of Q is nobody's any more, or Q has none. lock */
static void release(struct clair_peers *p, struct request *q)
{
	q->state = R_FREE;
	clair_buffer_put(p->pool, take_ptr(q->buffer));
}

/* LAND and UNLAND: the room of request KEY. */
static int send_key(struct clair_peers *p, uint16_t kind, uint64_t key, uint64_t offset,
		    uint64_t size)
{
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = kind,
				      .region = CLAIR_REGION_BUFFERS,
				      .key = key,
				      .offset = offset,
				      .length = size };

	return p->transport.send(p->transport.self, &f, NULL, -1);
}

/* --- events -------------------------------------------------------------------------- */

static void finish(struct request *q, int status)
{
	q->status = status;
	q->state = R_DONE;
	pthread_cond_signal(&q->done);
}

void peers_got_landed(struct clair_peers *p, const struct clair_link_frame *f)
{
	autolock(&p->lock);
	struct request *q = find(p, f->key);

	if (!q)
		return;
	q->landed = true;
	if (q->state == R_LIMBO)
		release(p, q);
}

/* Something was heard of Q. lock */
static void heard_of(struct clair_peers *p, const struct request *q)
{
	struct node *n = &p->nodes[q->node];

	if (q->key > n->answered)
		n->answered = q->key;
}

void peers_got_data(struct clair_peers *p, const struct clair_link_frame *f,
		    const struct peer_message *m)
{
	autolock(&p->lock);
	struct request *q = find(p, m->request);
	bool landed = f->length && f->key == m->request && !(f->flags & CLAIR_LINK_LOST);

	if (!q || q->node != f->node || q->state != R_WAITING)
		return; /* given up long ago */
	if (!q->coming)
		heard_of(p, q);
	int status = m->status > 0 ? -EPROTO : m->status;
	if (status == 0 && (!landed || f->length != q->size || m->id != q->id ||
			    m->piece != q->piece))
		status = -EPROTO;
	q->hash = m->hash;
	struct node *n = &p->nodes[q->node];
	if (status == 0) {
		n->in += q->size;
		n->samples_in += q->piece == 0;
	}
	finish(q, status);
}

void peers_got_coming(struct clair_peers *p, uint16_t node, uint64_t request)
{
	autolock(&p->lock);
	struct request *q = find(p, request);

	if (!q || q->node != node || q->state == R_LIMBO || q->coming)
		return;
	heard_of(p, q);
	q->coming = true;
	p->nodes[node].waiting -= q->size;
}

void peers_got_unlanded(struct clair_peers *p, uint64_t key)
{
	autolock(&p->lock);
	struct request *q = find(p, key);

	if (q && q->state == R_LIMBO)
		release(p, q);
}

void peers_fail_requests(struct clair_peers *p, uint32_t node)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct request *q = &p->requests[i];
		if (q->state == R_WAITING && q->node == node)
			finish(q, -EHOSTDOWN);
	}
}

void peers_got_sent(struct clair_peers *p, const struct clair_link_frame *f)
{
	struct answer a = { 0 };

	if (!f->token)
		return;
	pthread_mutex_lock(&p->lock);
	struct answer *there = &p->answers[f->token % SLOTS];
	if (there->token == f->token) {
		a = *there;
		there->token = 0;
		if (!(f->flags & CLAIR_LINK_DEAD) && a.node < p->count) {
			p->nodes[a.node].out += a.length;
			p->nodes[a.node].samples_out++;
		}
	}
	pthread_mutex_unlock(&p->lock);
	if (a.sent)
		a.sent(a.arg);
}

void peers_end_all(struct clair_peers *p)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		pthread_mutex_lock(&p->lock);
		struct request *q = &p->requests[i];
		struct answer a = p->answers[i];
		if (q->state == R_LIMBO)
			release(p, q);
		p->answers[i].token = 0;
		pthread_mutex_unlock(&p->lock);
		if (a.token && a.sent)
			a.sent(a.arg);
	}
}

/* --- asking -------------------------------------------------------------------------- */

/* Whether N gives far too little; its bandwidth is known then, before its answers tell. lock */
static bool crawls(struct node *n, int64_t now)
{
	int64_t ns = now - n->window_at;

	if (ns < WINDOW_NS)
		return n->crawls;
	double rate = (double)(n->in - n->window_in) * 1e9 / (double)ns;
	n->crawls = (double)n->waiting > CRAWL_S * rate;
	n->window_at = now;
	n->window_in = n->in;
	if (n->crawls)
		n->crawled_at = now;
	if (n->crawls && (n->rate <= 0 || rate < n->rate)) {
		n->rate = rate > CRAWL_RATE ? rate : CRAWL_RATE;
		n->measured = n->measured > MEASURED_BYTES ? n->measured : MEASURED_BYTES;
	}
	return n->crawls;
}

/* A slot for a request to NODE: waits for room. lock */
static int claim(struct clair_peers *p, uint16_t node, size_t size, struct request **out)
{
	struct node *n = &p->nodes[node];
	struct timespec deadline = clair_deadline(SILENCE_NS);
	uint32_t tried = 0;

	for (;;) {
		if (p->silent || !peers_is_up(p, node) || n->slow_until > clair_now_ns())
			return -EHOSTDOWN;
		if (n->outstanding < OUTSTANDING)
			break;
		if (crawls(n, clair_now_ns()))
			return -EHOSTDOWN;
		if (pthread_cond_timedwait(&p->changed, &p->lock, &deadline) == ETIMEDOUT)
			return -ETIMEDOUT;
	}
	while (p->requests[p->next_request % SLOTS].state != R_FREE) {
		if (++tried == SLOTS)
			return -EBUSY;
		p->next_request++;
	}
	struct request *q = &p->requests[p->next_request++ % SLOTS];
	if (!q->has_cond) {
		clair_cond_init(&q->done);
		q->has_cond = true;
	}
	q->key = ++p->serial * SLOTS + (uint64_t)(q - p->requests);
	q->state = R_WAITING;
	q->node = node;
	q->coming = q->landed = false;
	q->overtaken = 0;
	q->buffer = NULL;
	if (!n->outstanding++) {
		n->window_at = clair_now_ns();
		n->window_in = n->in;
		n->crawls = false;
	}
	n->waiting += size;
	n->requests++;
	*out = q;
	return 0;
}

/* Nothing was heard of N: it is left alone for a while, and longer each time. lock */
static void call_slow(struct node *n, int64_t now)
{
	if (now < n->slow_until)
		return;
	n->slow_ns = n->slow_ns ? 2 * n->slow_ns : SLOW_NS;
	if (n->slow_ns > SLOW_MOST_NS)
		n->slow_ns = SLOW_MOST_NS;
	n->slow_until = now + n->slow_ns;
}

/* Until it is answered, or nothing was heard for too long. lock */
static void await(struct clair_peers *p, struct request *q, int64_t begun)
{
	struct node *n = &p->nodes[q->node];

	while (q->state == R_WAITING) {
		int64_t now = clair_now_ns();
		int64_t since = n->heard > begun ? n->heard : begun;
		bool silent = now - since > SILENCE_NS;
		if (!q->coming && n->answered > q->key && !q->overtaken)
			q->overtaken = now;
		bool lost = !q->coming && q->overtaken && now - q->overtaken > OVERTAKEN_NS;
		bool lately = n->crawled_at && begun > n->crawled_at &&
			      begun - n->crawled_at < CRAWL_LATELY_NS;
		bool late = !q->coming &&
			    now - begun > (lately ? CRAWL_AGAIN_NS : CRAWL_NS) &&
			    crawls(n, now);
		if (now - begun > PATIENCE_NS || lost || late || (!q->coming && silent)) {
			if (silent || (late && now - since > CRAWL_NS))
				call_slow(n, now);
			n->timeouts++;
			finish(q, -ETIMEDOUT);
			break;
		}
		struct timespec t = clair_deadline(BATCH_NS);
		pthread_cond_timedwait(&q->done, &p->lock, &t);
	}
}

/* Of several answers at once the time since the one before counts; that of an answer that had to
 * be fetched first says nothing of the way. lock */
static void measure(struct node *n, const struct request *q, int64_t begun, int64_t now)
{
	double seconds = (double)(now - (n->ended > begun ? n->ended : begun)) / 1e9;

	n->ended = now;
	if (q->coming || seconds <= 0)
		return;
	double rate = (double)q->size / seconds, part = 1 - exp(-seconds / CLAIR_MODEL_MEMORY);
	n->rate = n->measured < MEASURED_BYTES ?
			  (n->rate * (double)n->measured + rate * (double)q->size) /
				  (double)(n->measured + q->size) :
			  n->rate + part * (rate - n->rate);
	n->measured += q->size;
}

static void account(struct node *n, const struct request *q, int64_t begun, int64_t now)
{
	uint64_t us = (uint64_t)(now - begun) / 1000;
	unsigned i = 0;

	if (q->status < 0) {
		n->failures++;
		return;
	}
	while (us >> i > 1 && i < LATENCIES - 1)
		i++;
	n->latency[i]++;
	measure(n, q, begun, now);
}

double clair_peers_expect(struct clair_peers *p, uint16_t node, uint64_t size)
{
	autolock(&p->lock);
	const struct node *n = node < p->count ? &p->nodes[node] : NULL;

	if (!n || n->measured < MEASURED_BYTES || n->rate <= 0)
		return 0;
	return (double)size / n->rate;
}

/* What came from NODE must be what it said; else it goes back. 0 or -EBADMSG. */
static int check_bytes(struct clair_peers *p, uint16_t node, struct clair_buffer **buffer,
		       size_t size, uint64_t hash)
{
	if (XXH3_64bits((*buffer)->data, size) == hash)
		return 0;
	clair_count(&p->stats->error_peer, 1);
	log_error("node %u sent damaged bytes; fetched from the source", node);
	clair_buffer_put(p->pool, take_ptr(*buffer));
	return -EBADMSG;
}

int clair_peers_fetch(struct clair_peers *p, uint16_t node, uint32_t id, uint32_t piece,
		      size_t size, struct clair_buffer **out, uint64_t *hash)
{
	struct peer_message m = { .kind = P_GET, .id = id, .piece = piece,
				  .hash = p->placement_hash };
	struct clair_buffer *buffer = clair_buffer_get(p->pool, size);
	struct request *q;
	uint64_t key = 0;

	if (!buffer || buffer->offset == CLAIR_NOT_SHARED || node >= p->count) {
		clair_buffer_put(p->pool, buffer);
		return node < p->count ? -ENOBUFS : -EHOSTDOWN;
	}
	pthread_mutex_lock(&p->lock);
	int r = claim(p, node, size, &q);
	if (r == 0) {
		q->id = id;
		q->piece = piece;
		q->size = size;
		q->buffer = buffer;
		m.request = key = q->key;
	}
	pthread_mutex_unlock(&p->lock);
	if (r < 0) {
		clair_buffer_put(p->pool, buffer);
		return r;
	}
	int64_t begun = clair_now_ns();
	r = send_key(p, CLAIR_LINK_LAND, key, buffer->offset, size);
	bool room = r == 0;
	if (r == 0)
		r = peers_send(p, node, &m, NULL, 0);

	pthread_mutex_lock(&p->lock);
	if (r < 0 && q->state == R_WAITING)
		finish(q, -EHOSTDOWN);
	await(p, q, begun);
	r = q->status;
	struct node *n = &p->nodes[node];
	n->outstanding--;
	n->waiting -= q->coming ? 0 : size;
	account(n, q, begun, clair_now_ns());
	pthread_cond_broadcast(&p->changed);
	bool limbo = false;
	if (q->landed || !room || p->closed) {
		*hash = q->hash;
		if (r == 0)
			*out = take_ptr(q->buffer);
		release(p, q);
	} else {
		q->state = R_LIMBO;
		limbo = true;
	}
	pthread_mutex_unlock(&p->lock);
	if (limbo)
		send_key(p, CLAIR_LINK_UNLAND, key, 0, 0);
	return r < 0 ? r : check_bytes(p, node, out, size, *hash);
}

/* --- being asked ----------------------------------------------------------------------- */

static void refuse(struct clair_peers *p, uint16_t node, uint64_t request)
{
	struct clair_piece none = { .request = request, .status = -EHOSTDOWN };

	clair_peers_answer(p, node, &none, NULL, NULL);
}

/* Nodes ask by their placement: with another one samples are read twice, though never wrong. */
static void check_placement(struct clair_peers *p, uint16_t node, uint64_t hash)
{
	pthread_mutex_lock(&p->lock);
	bool first = p->placement && hash != p->placement_hash && !p->nodes[node].misplaced;
	if (first)
		p->nodes[node].misplaced = true;
	pthread_mutex_unlock(&p->lock);
	if (first)
		log_warning("node %u places samples by other settings or room than this one: some are "
			    "read from the source twice",
			    node);
}

void peers_got_get(struct clair_peers *p, const struct clair_peers_server *server,
		   uint16_t node, const struct peer_message *m)
{
	check_placement(p, node, m->hash);
	if (server->get) {
		server->get(server->self, node, m->id, m->piece, m->request);
		return;
	}
	struct early *e = malloc(sizeof *e);
	pthread_mutex_lock(&p->lock);
	bool waits = e && !p->left && p->early_count < EARLY_MOST;
	if (waits) {
		*e = (struct early){ NULL, node, m->id, m->piece, m->request };
		*p->early_last = e;
		p->early_last = &e->next;
		p->early_count++;
	}
	bool by_now = p->server.get; /* set after SERVER was copied */
	pthread_mutex_unlock(&p->lock);
	if (waits) {
		clair_peers_coming(p, node, m->request);
	} else {
		free(e);
		refuse(p, node, m->request);
	}
	if (by_now)
		peers_serve_early(p);
}

void peers_serve_early(struct clair_peers *p)
{
	pthread_mutex_lock(&p->lock);
	struct clair_peers_server server = p->server;
	struct early *e = take_ptr(p->early);
	p->early_last = &p->early;
	p->early_count = 0;
	pthread_mutex_unlock(&p->lock);
	while (e) {
		struct early *next = e->next;
		if (server.get)
			server.get(server.self, e->node, e->id, e->piece, e->request);
		else
			refuse(p, e->node, e->request);
		free(e);
		e = next;
	}
}

/* --- answering ------------------------------------------------------------------------ */

void clair_peers_coming(struct clair_peers *p, uint16_t node, uint64_t request)
{
	struct peer_message m = { .kind = P_COMING, .request = request };

	peers_send(p, node, &m, NULL, 0);
}

void clair_peers_answer(struct clair_peers *p, uint16_t node, const struct clair_piece *piece,
			void (*sent)(void *arg), void *arg)
{
	struct peer_message m = { .kind = P_DATA,
				  .id = piece->id,
				  .piece = piece->piece,
				  .request = piece->request,
				  .status = piece->status,
				  .hash = piece->hash };
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = CLAIR_LINK_SEND,
				      .node = node,
				      .small = sizeof m };
	uint32_t tried = 0;

	pthread_mutex_lock(&p->lock);
	if (m.status == 0) {
		while (tried < SLOTS && p->answers[p->next_answer % SLOTS].token) {
			p->next_answer++;
			tried++;
		}
		if (tried == SLOTS || p->closed)
			m.status = -EBUSY;
	}
	if (m.status == 0) {
		uint32_t i = p->next_answer++ % SLOTS;
		f.token = ++p->serial * SLOTS + i;
		f.region = piece->region;
		f.offset = piece->offset;
		f.length = m.length = (uint32_t)piece->length;
		f.key = piece->request;
		p->answers[i] = (struct answer){ .token = f.token,
						 .sent = sent,
						 .arg = arg,
						 .node = node,
						 .length = piece->length };
	}
	pthread_mutex_unlock(&p->lock);
	peers_stamp(p, &m);
	int r = p->transport.send(p->transport.self, &f, &m, -1);
	if (f.token && r < 0)
		peers_got_sent(p, &(struct clair_link_frame){ .token = f.token,
							      .flags = CLAIR_LINK_DEAD });
	else if (!f.token && sent)
		sent(arg);
}
