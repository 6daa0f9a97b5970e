/* SPDX-License-Identifier: BSD-3-Clause */
/* Three nodes with several readers each, while messages are lost, doubled, cut and damaged,
 * nodes fall silent, and one is cut off; every byte is compared. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "clock.h"
#include "peer_world.h"

#define NODES 3
#define READERS 2 /* a node */
#define ROUNDS 3
#define ROUND_NS CLAIR_NS_PER_S

static struct peer_world pw;
static atomic_bool over, wrong;
static atomic_uint files;
static struct clair_epoch *orders[NODES];

static void *reader(void *arg)
{
	uint32_t node = *(uint32_t *)arg / READERS;
	unsigned at = *(uint32_t *)arg * 31;

	while (!atomic_load(&over)) {
		const struct clair_epoch *order = orders[node];
		/* Nobody else has it any more when the kernel and the daemon forgot it. */
		if (at % 3 == 0)
			world_lose(&pw.worlds[node], order->ids[at % order->count]);
		if (!world_read(&pw.worlds[node], order->ids[at++ % order->count], true))
			atomic_store(&wrong, true);
		atomic_fetch_add(&files, 1);
	}
	return NULL;
}

/* What is asked of a job's nodes while they run. */
static void *asker(void *arg)
{
	unsigned seed = 7;

	(void)arg;
	while (!atomic_load(&over)) {
		struct clair_peers *peers = pw.net.nodes[rand_r(&seed) % NODES].peers;
		json_t *o = json_object();
		clair_peers_json(peers, o);
		json_decref(o);
		json_decref(clair_peers_gather(peers, 20));
		clair_peers_tell_found(peers, 0, "seed=1");
		clair_peers_hold(peers, seed, 0);
		clair_peers_capacity(peers);
		clair_peers_done(peers);
		usleep(5000);
	}
	return NULL;
}

static struct net_faults draw(unsigned *seed)
{
	struct net_faults f = { 0 };

	switch (rand_r(seed) % 6) {
	case 0: f.delay_us = 5000; break;
	case 1: f.lose = 20; break;
	case 2: f.duplicate = 300; break;
	case 3: f.truncate = 50; break;
	case 4: f.corrupt = 100; break;
	case 5: break;
	}
	return f;
}

static void disturb(unsigned seed)
{
	int64_t begun = clair_now_ns(), end = begun + ROUND_NS;
	bool killed = false;

	while (clair_now_ns() < end) {
		struct net_faults faults = draw(&seed);
		uint32_t node = (unsigned)rand_r(&seed) % NODES;

		net_set_faults(&pw.net, &faults);
		net_set_stuck(&pw.net, node, rand_r(&seed) % 4 == 0);
		world_lose(&pw.worlds[node],
			   orders[node]->ids[(unsigned)rand_r(&seed) % orders[node]->count]);
		usleep(20000);
		net_set_stuck(&pw.net, node, false);
		if (!killed && clair_now_ns() > begun + ROUND_NS / 2 && rand_r(&seed) % 4 == 0) {
			net_kill(&pw.net, node);
			killed = true;
		}
	}
}

static void run(unsigned round, unsigned long ram)
{
	struct peer_world_config c = {
		.nodes = NODES,
		.ranks = NODES,
		.world = { .files = 150, .size = 30000, .large = round == 1 ? 9 << 20 : 0,
			   .ram = ram, .staging = (round == 1 ? 12 : 1) << 20, .keep = CLAIR_KEEP_ARENA,
			   .words = { "seed", "42", "sampler", "torch-distributed", "index",
				      "sorted" } },
	};
	pthread_t threads[NODES * READERS], other;
	uint32_t numbers[NODES * READERS];

	peer_world_begin(&pw, &c);
	for (uint32_t i = 0; i < NODES; i++)
		orders[i] = world_order(&pw.worlds[i], pw.words[i], 0, i);
	atomic_store(&over, false);
	for (uint32_t i = 0; i < NODES * READERS; i++) {
		numbers[i] = i;
		pthread_create(&threads[i], NULL, reader, &numbers[i]);
	}
	pthread_create(&other, NULL, asker, NULL);
	disturb(round + 1);
	atomic_store(&over, true);
	for (uint32_t i = 0; i < NODES * READERS; i++)
		pthread_join(threads[i], NULL);
	pthread_join(other, NULL);
	for (uint32_t i = 0; i < NODES; i++)
		clair_epoch_put(orders[i]);
	peer_world_end(&pw);
}

int main(void)
{
	static const unsigned long rams[ROUNDS] = { 4 << 20, 20 << 20, 1 << 20 };

	for (unsigned i = 0; i < ROUNDS; i++)
		run(i, rams[i]);
	printf("%u files read\n", atomic_load(&files));
	if (atomic_load(&wrong))
		puts("wrong bytes");
	return atomic_load(&wrong);
}
