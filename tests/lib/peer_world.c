/* SPDX-License-Identifier: BSD-3-Clause */
#include "peer_world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "clock.h"

#define AGREE_MS 30000

struct beginning {
	struct peer_world *pw;
	const struct peer_world_config *config;
	uint32_t node;
};

struct reading {
	struct peer_world *pw;
	uint32_t rank;
	uint64_t from, to;
	int64_t longest;
	bool right;
};

uint32_t peer_world_node(const struct peer_world *pw, uint32_t rank)
{
	return rank * pw->nodes / pw->ranks;
}

static void make_words(struct peer_world *pw, const struct peer_world_config *c, uint32_t node)
{
	const char **words = pw->words[node];
	uint32_t first = c->ranks, last = 0;
	size_t n = 0;

	for (; c->world.words[n]; n++)
		words[n] = c->world.words[n];
	if (c->unknown)
		return;
	for (uint32_t r = 0; r < c->ranks; r++) {
		if (peer_world_node(pw, r) != node)
			continue;
		first = r < first ? r : first;
		last = r > last ? r : last;
	}
	snprintf(pw->world_text, sizeof pw->world_text, "%u", c->ranks);
	snprintf(pw->numbers[node], sizeof pw->numbers[node], "%u-%u", first, last);
	words[n++] = "world";
	words[n++] = pw->world_text;
	words[n++] = "ranks";
	words[n++] = pw->numbers[node];
	words[n] = NULL;
}

static void place(struct peer_world *pw, const struct peer_world_config *c, uint32_t node,
		  struct clair_placement **out)
{
	struct world *w = &pw->worlds[node];
	struct clair_peers *peers = pw->net.nodes[node].peers;
	struct clair_placement_node nodes[NET_NODES] = { 0 };
	uint16_t of_rank[64];
	const uint16_t *of_ranks = of_rank;
	autofree struct clair_stream **streams = NULL;
	size_t count;

	int r = clair_stage_streams(w->stage, &streams, &count);
	assert(r == 0 && count == 1);
	for (uint32_t k = 0; k < pw->ranks; k++)
		of_rank[k] = CLAIR_NO_NODE;
	for (uint32_t i = 0; i < pw->nodes; i++) {
		const struct clair_peer_info *info = clair_peers_info(peers, i);
		if (!info)
			continue;
		nodes[i] = (struct clair_placement_node){ info->ram, info->cache };
		for (uint32_t k = 0; k < info->rank_count; k++)
			of_rank[info->ranks[k]] = (uint16_t)i;
	}
	if (c->unknown)
		of_ranks = NULL;
	struct clair_placement_input input = {
		.catalog = w->catalog, .nodes = nodes, .node_count = pw->nodes, .self = node,
		.streams = streams, .stream_count = count, .node_of_rank = &of_ranks,
	};
	r = clair_policy_find(c->policy ? c->policy : "clairfs")->place(&input, out);
	assert(r == 0);
}

static void *begin_node(void *arg)
{
	struct beginning *b = arg;
	struct peer_world *pw = b->pw;
	struct world *w = &pw->worlds[b->node];
	struct clair_peers *peers = pw->net.nodes[b->node].peers;
	struct clair_placement *placement = NULL;
	autofree struct clair_peer_info *info = calloc(1, sizeof *info);
	uint32_t self, count;

	int r = clair_peers_hello(peers, AGREE_MS, &self, &count);
	assert(r == 0 && self == b->node && count == pw->nodes);
	info->catalog = clair_catalog_hash(w->catalog);
	info->ram = b->config->world.ram;
	snprintf(info->host, sizeof info->host, "host%u", self);
	strcpy(info->order, "the same");
	for (uint32_t k = 0; !b->config->unknown && k < pw->ranks; k++)
		if (peer_world_node(pw, k) == self)
			info->ranks[info->rank_count++] = k;
	r = clair_peers_agree(peers, info, AGREE_MS);
	assert(r == 0);
	place(pw, b->config, b->node, &placement);
	r = clair_stage_set_peers(w->stage, peers, placement);
	assert(r == 0);
	r = clair_stage_start(w->stage);
	assert(r == 0);
	return NULL;
}

void peer_world_begin(struct peer_world *pw, const struct peer_world_config *c)
{
	struct clair_stats *stats[NET_NODES] = { NULL };
	struct beginning beginnings[NET_NODES];
	pthread_t threads[NET_NODES];

	memset(pw, 0, sizeof *pw);
	pw->nodes = c->nodes;
	pw->ranks = c->ranks ? c->ranks : c->nodes;
	for (uint32_t i = 0; i < c->nodes; i++) {
		struct world_config config = c->world;

		make_words(pw, c, i);
		config.folder = i ? pw->worlds[0].folder : NULL;
		config.words[0] = NULL;
		world_begin(&pw->worlds[i], &config);
		world_set_stream(&pw->worlds[i], pw->words[i]);
		stats[i] = &pw->worlds[i].stats;
	}
	net_begin(&pw->net, c->nodes, stats);
	for (uint32_t i = 0; i < c->nodes; i++) {
		beginnings[i] = (struct beginning){ pw, c, i };
		pthread_create(&threads[i], NULL, begin_node, &beginnings[i]);
	}
	for (uint32_t i = 0; i < c->nodes; i++)
		pthread_join(threads[i], NULL);
}

void peer_world_end_node(struct peer_world *pw, uint32_t node)
{
	if (!pw->ended[node])
		world_end(&pw->worlds[node]);
	pw->ended[node] = true;
}

void peer_world_end(struct peer_world *pw)
{
	for (uint32_t i = pw->nodes; i-- > 0;)
		peer_world_end_node(pw, i);
	net_end(&pw->net);
}

bool peer_world_epoch(struct peer_world *pw, uint32_t rank, uint64_t epoch, int64_t *longest)
{
	uint32_t node = peer_world_node(pw, rank);
	struct world *w = &pw->worlds[node];
	struct clair_epoch *order = world_order(w, pw->words[node], epoch, rank);
	bool right = order;

	for (uint32_t i = 0; right && i < order->count; i++) {
		if (pw->paced)
			clair_stage_wait_full(w->stage, AGREE_MS);
		int64_t begun = clair_now_ns();
		right = world_read(w, order->ids[i], true);
		int64_t took = clair_now_ns() - begun;
		if (longest && took > *longest)
			*longest = took;
	}
	clair_epoch_put(order);
	return right;
}

static void *read_rank(void *arg)
{
	struct reading *r = arg;

	r->right = true;
	for (uint64_t e = r->from; r->right && e < r->to; e++)
		r->right = peer_world_epoch(r->pw, r->rank, e, &r->longest);
	return NULL;
}

bool peer_world_train(struct peer_world *pw, uint64_t from, uint64_t to, int64_t *longest)
{
	struct reading readings[64];
	pthread_t threads[64];
	bool right = true;

	for (uint32_t k = 0; k < pw->ranks; k++) {
		readings[k] = (struct reading){ pw, k, from, to, 0, false };
		pthread_create(&threads[k], NULL, read_rank, &readings[k]);
	}
	for (uint32_t k = 0; k < pw->ranks; k++) {
		pthread_join(threads[k], NULL);
		right = right && readings[k].right;
		if (longest && readings[k].longest > *longest)
			*longest = readings[k].longest;
	}
	return right;
}

bool peer_world_train_together(struct peer_world *pw, uint64_t from, uint64_t to,
			       int64_t *longest)
{
	bool right = true;

	for (uint64_t e = from; right && e < to; e++)
		right = peer_world_train(pw, e, e + 1, longest);
	return right;
}

/* --- sums ---------------------------------------------------------------------------------- */

uint64_t peer_world_pfs(const struct peer_world *pw)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < pw->nodes; i++)
		sum += pw->worlds[i].stats.pfs.bytes;
	return sum;
}

uint64_t peer_world_from_peers(const struct peer_world *pw)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < pw->nodes; i++)
		sum += pw->worlds[i].stats.peer.bytes;
	return sum;
}

uint64_t peer_world_errors(const struct peer_world *pw)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < pw->nodes; i++)
		sum += pw->worlds[i].stats.error_peer;
	return sum;
}
