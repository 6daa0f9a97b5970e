/* SPDX-License-Identifier: BSD-3-Clause */
/* What is seen of the peers. */
#include "peers_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "cleanup.h"

/* The latency below which SHARE of the answers lie, in microseconds: the end of its power of
 * two. 0 when there were none. */
static uint64_t percentile(const uint64_t latency[LATENCIES], double share)
{
	uint64_t all = 0, seen = 0;

	for (unsigned i = 0; i < LATENCIES; i++)
		all += latency[i];
	for (unsigned i = 0; all && i < LATENCIES; i++) {
		seen += latency[i];
		if ((double)seen >= share * (double)all)
			return 2ull << i;
	}
	return 0;
}

static json_t *node_json(const struct clair_peers *p, uint32_t i)
{
	const struct node *n = &p->nodes[i];
	const char *state = !peers_is_up(p, i)		      ? "down" :
			    n->slow_until > clair_now_ns() ? "slow" :
							      "up";
	json_t *o = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			      "node", (int)i, "host", n->info ? n->info->host : "", "state",
			      state, "ram", (json_int_t)n->ram, "cache", (json_int_t)n->cache,
			      "bytes_in", (json_int_t)n->in, "bytes_out", (json_int_t)n->out,
			      "samples_in", (json_int_t)n->samples_in, "requests",
			      (json_int_t)n->requests, "failures", (json_int_t)n->failures,
			      "latency_p50_us", (json_int_t)percentile(n->latency, 0.5),
			      "latency_p99_us", (json_int_t)percentile(n->latency, 0.99),
			      "timeouts", (json_int_t)n->timeouts);

	if (o && n->rate > 0)
		json_object_set_new(o, "mb_s", json_real(n->rate / 1e6));
	if (o && p->placement)
		json_object_set_new(o, "home_bytes",
				    json_integer((json_int_t)clair_placement_filled(
					    p->placement, i)));
	return o;
}

int clair_peers_json(struct clair_peers *p, json_t *object)
{
	json_t *list = json_array();

	autolock(&p->lock);
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self)
			json_array_append_new(list, node_json(p, i));
	if (json_object_set_new(object, "node", json_integer(p->self)) < 0 ||
	    json_object_set_new(object, "nodes", json_integer(p->count)) < 0 ||
	    json_object_set_new(object, "peers", list) < 0)
		return -ENOMEM;
	return 0;
}

static bool all_said(const struct clair_peers *p)
{
	for (uint32_t i = 0; i < p->count; i++)
		if (i != p->self && peers_is_up(p, i) && !p->nodes[i].status)
			return false;
	return true;
}

json_t *clair_peers_gather(struct clair_peers *p, int timeout_ms)
{
	struct timespec deadline = clair_deadline(timeout_ms * CLAIR_NS_PER_MS);
	json_t *list = json_array();

	pthread_mutex_lock(&p->lock);
	uint64_t request = ++p->status_request;
	for (uint32_t i = 0; i < p->count; i++)
		free(take_ptr(p->nodes[i].status));
	pthread_mutex_unlock(&p->lock);
	for (uint32_t i = 0; i < p->count; i++) {
		struct peer_message m = { .kind = P_ASK, .request = request };
		if (i != p->self)
			peers_send(p, i, &m, NULL, 0);
	}
	autolock(&p->lock);
	while (request == p->status_request && !all_said(p))
		if (pthread_cond_timedwait(&p->changed, &p->lock, &deadline) == ETIMEDOUT)
			break;
	for (uint32_t i = 0; i < p->count; i++) {
		json_t *said = p->nodes[i].status ? json_loads(p->nodes[i].status, 0, NULL) :
						    NULL;
		json_array_append_new(list, said ? said : json_null());
	}
	return list;
}

void clair_peers_hold(struct clair_peers *p, uint64_t ram, uint64_t cache)
{
	atomic_store_explicit(&p->ram, ram, memory_order_relaxed);
	atomic_store_explicit(&p->cache, cache, memory_order_relaxed);
}

uint64_t clair_peers_capacity(struct clair_peers *p)
{
	uint64_t bytes = 0;

	autolock(&p->lock);
	for (uint32_t i = 0; i < p->count; i++)
		if (p->nodes[i].info && (i == p->self || peers_is_up(p, i)))
			bytes += p->nodes[i].info->ram + p->nodes[i].info->cache;
	return bytes;
}

void clair_peers_load(struct clair_peers *p, uint32_t loads)
{
	atomic_store_explicit(&p->loads, loads, memory_order_relaxed);
}

uint32_t clair_peers_loading(struct clair_peers *p)
{
	uint32_t n = atomic_load_explicit(&p->loading, memory_order_relaxed) +
		     (atomic_load_explicit(&p->loads, memory_order_relaxed) > 0);

	return n ? n : 1;
}
