/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "peer_world.h"
#include "peers_internal.h"
#include "stage_internal.h"
#include "stats.h"

#define FILES 240
#define SIZE 30000
#define WORDS                                                                           \
	{                                                                               \
		"seed", "42", "sampler", "torch-distributed", "index", "sorted",        \
			"epochs", "4"                                                   \
	}
/* A fault holds up a read by a little more than a second at most; on a loaded machine more. */
#define LONG_NS (4 * CLAIR_NS_PER_S)

static struct peer_world pw;

TestSuite(peers, .timeout = 90); /* nothing hangs */

static struct peer_world_config job(unsigned nodes, unsigned percent)
{
	return (struct peer_world_config){
		.nodes = nodes,
		.ranks = 4,
		.world = { .files = FILES,
			   .size = SIZE,
			   .ram = (uint64_t)FILES * SIZE * percent / 100 / nodes,
			   .staging = 1 << 20,
			   .keep = CLAIR_KEEP_ARENA,
			   .words = WORDS },
	};
}

static struct peer_world_config unknown_job(unsigned nodes)
{
	struct peer_world_config c = job(nodes, 130);

	c.unknown = true;
	memset(c.world.words, 0, sizeof c.world.words);
	c.world.words[0] = "index";
	c.world.words[1] = "sorted";
	return c;
}

static void begin(const struct peer_world_config *config)
{
	peer_world_begin(&pw, config);
}

/* Every sample left the source once; a node that was slow for a moment (this machine may be)
 * may have been passed over now and then. */
static void check_once(void)
{
	uint64_t dataset = world_dataset(&pw.worlds[0]), pfs = peer_world_pfs(&pw);

	cr_expect_geq(pfs, dataset);
	cr_expect_leq(pfs, dataset + dataset / 50, "%lu of %lu", pfs, dataset);
}

/* --- all is well --------------------------------------------------------------------------- */

static void all_fits(unsigned nodes)
{
	struct peer_world_config c = job(nodes, 130);

	begin(&c);
	uint64_t dataset = world_dataset(&pw.worlds[0]);
	cr_expect(peer_world_train(&pw, 0, 3, NULL));
	check_once();
	cr_expect_gt(peer_world_from_peers(&pw), dataset / 4);
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

Test(peers, all_fits_two)
{
	all_fits(2);
}

Test(peers, all_fits_four)
{
	all_fits(4);
}

static void half_fits(unsigned nodes)
{
	struct peer_world_config c = job(nodes, 50);
	uint64_t epochs = 4;

	begin(&c);
	uint64_t dataset = world_dataset(&pw.worlds[0]);
	uint64_t bound = clair_pfs_bound(dataset, c.world.ram * nodes, epochs);
	cr_expect(peer_world_train_together(&pw, 0, epochs, NULL));
	cr_expect_leq(peer_world_pfs(&pw), bound + bound / 50, "%lu of %lu",
		      peer_world_pfs(&pw), bound);
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

Test(peers, half_fits_two)
{
	half_fits(2);
}

Test(peers, half_fits_four)
{
	half_fits(4);
}

/* Nobody knows the order: each sample has a home, which alone reads it from the source. */
Test(peers, unknown_order)
{
	struct peer_world_config c = unknown_job(4);

	begin(&c);
	for (uint32_t id = 0; id < clair_catalog_count(pw.worlds[0].catalog); id++) {
		if (clair_catalog_entry(pw.worlds[0].catalog, id)->parent !=
		    pw.worlds[0].folder_id)
			continue;
		uint16_t home = clair_peers_home(pw.net.nodes[0].peers, id);
		cr_expect_lt(home, 4);
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t node = (i + id) % 4;
			cr_expect_eq(clair_peers_home(pw.net.nodes[node].peers, id), home);
			cr_expect(world_read(&pw.worlds[node], id, true));
		}
	}
	check_once();
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

/* A file of several pieces comes from its home in pieces. */
Test(peers, pieces)
{
	struct peer_world_config c = job(2, 100);

	c.world.large = (9 << 20) + 4321;
	c.world.ram = 24 << 20;
	c.world.staging = 16 << 20;
	begin(&c);
	pw.paced = true; /* a reader that comes first reads ranges from the source */
	uint64_t dataset = world_dataset(&pw.worlds[0]);
	cr_expect(peer_world_train_together(&pw, 0, 4, NULL));
	cr_expect_leq(peer_world_pfs(&pw), dataset + dataset / 50, "%lu of %lu",
		      peer_world_pfs(&pw), dataset);
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

/* What others ask of a large file is kept like what its home reads. */
Test(peers, served_pieces_are_kept)
{
	struct peer_world_config c = unknown_job(2);
	size_t size = (9 << 20) + 4321;

	c.world.large = size;
	c.world.ram = 24 << 20;
	begin(&c);
	uint32_t id = clair_catalog_find(pw.worlds[0].catalog, "train/large.png");
	uint16_t home = clair_peers_home(pw.net.nodes[0].peers, id);
	cr_assert_lt(home, 2);
	struct world *asker = &pw.worlds[!home];
	struct clair_pool *pool = asker->stage->pool;
	for (uint32_t round = 0; round < 3; round++)
		for (uint32_t piece = 0; piece < 3; piece++) {
			struct clair_buffer *out = NULL;
			uint64_t hash;
			size_t part = piece < 2 ? PIECE : size - 2 * PIECE;
			cr_assert_eq(clair_peers_fetch(pw.net.nodes[!home].peers, home, id, piece,
						       part, &out, &hash), 0);
			for (size_t i = 0; i < part; i += 999)
				cr_assert_eq(out->data[i],
					     world_byte(77, i + (size_t)piece * PIECE));
			clair_buffer_put(pool, out);
		}
	cr_expect_eq(pw.worlds[home].stats.pfs.bytes, size);
	cr_expect_str_eq(clair_stage_where(pw.worlds[home].stage, id), "ram");
	cr_expect(world_read(&pw.worlds[home], id, true));
	cr_expect_eq(pw.worlds[home].stats.pfs.bytes, size);
	peer_world_end(&pw);
}

/* Readers of a large file whose order is not known get its pieces from its home, which reads
 * each once. */
Test(peers, readers_of_large_files_ask_its_home)
{
	struct peer_world_config c = unknown_job(3);
	size_t size = (9 << 20) + 4321;

	c.world.large = size;
	c.world.ram = 24 << 20;
	begin(&c);
	uint32_t id = clair_catalog_find(pw.worlds[0].catalog, "train/large.png");
	for (unsigned round = 0; round < 2; round++)
		for (unsigned node = 0; node < 3; node++) {
			cr_expect(world_read(&pw.worlds[node], id, true));
			world_lose(&pw.worlds[node], id);
		}
	cr_expect_eq(peer_world_pfs(&pw), size, "%lu", peer_world_pfs(&pw));
	cr_expect_geq(peer_world_from_peers(&pw), 2 * size);
	peer_world_end(&pw);
}

/* --- faults -------------------------------------------------------------------------------- */

/* Reads two epochs while FAULTS go on. */
static void train_with(const struct net_faults *faults, int64_t *longest)
{
	struct peer_world_config c = job(4, 130);

	begin(&c);
	net_set_faults(&pw.net, faults);
	cr_expect(peer_world_train_together(&pw, 0, 2, longest));
	net_set_faults(&pw.net, &(struct net_faults){ 0 });
	cr_expect(peer_world_train_together(&pw, 2, 3, longest));
}

static uint64_t reader_errors(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < pw.nodes; i++)
		sum += pw.worlds[i].stats.error_reader;
	return sum;
}

Test(peers, delayed_and_reordered)
{
	train_with(&(struct net_faults){ .delay_us = 3000 }, NULL);
	check_once();
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

Test(peers, duplicated)
{
	train_with(&(struct net_faults){ .duplicate = 400, .delay_us = 500 }, NULL);
	check_once();
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

Test(peers, lost_requests)
{
	int64_t longest = 0;

	train_with(&(struct net_faults){ .lose = 30, .kinds = 1 << P_GET | 1 << P_COMING },
		   &longest);
	cr_expect_lt(longest, LONG_NS, "%ld ms", longest / 1000000);
	cr_expect_eq(reader_errors(), 0);
	peer_world_end(&pw);
}

Test(peers, truncated)
{
	train_with(&(struct net_faults){ .truncate = 30 }, NULL);
	cr_expect_gt(peer_world_errors(&pw), 0);
	cr_expect_eq(reader_errors(), 0);
	peer_world_end(&pw);
}

Test(peers, damaged)
{
	train_with(&(struct net_faults){ .corrupt = 200 }, NULL);
	cr_expect_gt(peer_world_errors(&pw), 0);
	cr_expect_eq(reader_errors(), 0);
	peer_world_end(&pw);
}

static const char *state_of(uint32_t of, uint32_t node, char *text, size_t size)
{
	json_t *o = json_object(), *peer;
	size_t i;

	cr_assert_eq(clair_peers_json(pw.net.nodes[of].peers, o), 0);
	*text = '\0';
	json_array_foreach(json_object_get(o, "peers"), i, peer)
		if (json_integer_value(json_object_get(peer, "node")) == node)
			snprintf(text, size, "%s",
				 json_string_value(json_object_get(peer, "state")));
	json_decref(o);
	return text;
}

static bool await_state(uint32_t of, uint32_t node, const char *state)
{
	int64_t end = clair_now_ns() + 30 * CLAIR_NS_PER_S;
	char text[16];

	while (strcmp(state_of(of, node, text, sizeof text), state)) {
		if (clair_now_ns() > end)
			return false;
		usleep(1000);
	}
	return true;
}

/* A node that takes nothing holds up what it keeps for a moment, and nothing else. */
Test(peers, silent_node)
{
	struct peer_world_config c = job(4, 130);
	int64_t longest = 0;
	char text[16];

	begin(&c);
	cr_expect(peer_world_train_together(&pw, 0, 1, NULL));
	net_set_stuck(&pw.net, 3, true);
	for (uint64_t e = 1; e < 3; e++)
		for (uint32_t rank = 0; rank < 3; rank++)
			cr_expect(peer_world_epoch(&pw, rank, e, &longest));
	cr_expect_lt(longest, LONG_NS, "%ld ms", longest / 1000000);
	bool slow = false;
	for (uint32_t i = 0; i < 3; i++)
		slow = slow || !strcmp(state_of(i, 3, text, sizeof text), "slow");
	cr_expect(slow);
	net_set_stuck(&pw.net, 3, false);
	cr_expect(peer_world_train_together(&pw, 3, 4, &longest));
	cr_expect_lt(longest, LONG_NS, "%ld ms", longest / 1000000);
	cr_expect_eq(reader_errors(), 0);
	peer_world_end(&pw);
}

static void tell_state(uint32_t of, uint32_t flags)
{
	struct clair_link_frame f = { .version = CLAIR_LINK_VERSION,
				      .kind = CLAIR_LINK_STATE,
				      .node = of,
				      .flags = flags };

	for (uint32_t i = 0; i < pw.nodes; i++)
		if (i != of)
			clair_peers_frame(pw.net.nodes[i].peers, &f, NULL, -1);
}

static uint64_t home_bytes(uint32_t node);

/* A node that does not answer is down, but not for good: what it kept is its own again once it
 * answers; one that is gone stays so. */
Test(peers, back_again)
{
	struct peer_world_config c = job(4, 130);
	int64_t longest = 0;
	char text[16];

	begin(&c);
	uint64_t before = home_bytes(3);
	cr_expect_gt(before, 0);
	tell_state(3, CLAIR_LINK_SILENT);
	cr_expect_eq(home_bytes(3), 0);
	cr_expect_str_eq(state_of(1, 3, text, sizeof text), "down");
	cr_expect(peer_world_epoch(&pw, 1, 0, &longest));
	tell_state(3, 0);
	cr_expect_eq(home_bytes(3), before);
	cr_expect_str_eq(state_of(1, 3, text, sizeof text), "up");
	cr_expect(peer_world_train_together(&pw, 1, 2, &longest));
	tell_state(3, CLAIR_LINK_SILENT);
	tell_state(3, CLAIR_LINK_DEAD);
	tell_state(3, 0);
	cr_expect_eq(home_bytes(3), 0);
	cr_expect_eq(reader_errors(), 0);
	peer_world_end(&pw);
}

static uint64_t home_bytes(uint32_t node)
{
	const struct clair_catalog *catalog = pw.worlds[0].catalog;
	uint64_t sum = 0;

	for (uint32_t id = 0; id < clair_catalog_count(catalog); id++)
		if (clair_peers_home(pw.net.nodes[0].peers, id) == node)
			sum += clair_catalog_entry(catalog, id)->size;
	return sum;
}

static void check_same_homes(uint32_t gone)
{
	const struct clair_catalog *catalog = pw.worlds[0].catalog;

	for (uint32_t id = 0; id < clair_catalog_count(catalog); id++) {
		uint16_t home = clair_peers_home(pw.net.nodes[0].peers, id);
		cr_expect_neq(home, gone);
		for (uint32_t i = 1; i < pw.nodes; i++)
			if (i != gone)
				cr_expect_eq(clair_peers_home(pw.net.nodes[i].peers, id), home);
	}
}

static uint64_t pfs_of_three(void)
{
	return pw.worlds[0].stats.pfs.bytes + pw.worlds[1].stats.pfs.bytes +
	       pw.worlds[2].stats.pfs.bytes;
}

/* What a dead node kept is fetched once more, by its new homes. */
Test(peers, dead_node)
{
	struct peer_world_config c = job(4, 200);
	int64_t longest = 0;

	begin(&c);
	cr_expect(peer_world_train_together(&pw, 0, 1, NULL));
	for (uint32_t i = 0; i < 4; i++) /* nothing is under way */
		cr_expect_eq(clair_stage_wait_full(pw.worlds[i].stage, 30000), 0);
	uint64_t kept = home_bytes(3), before = pfs_of_three();
	cr_expect_gt(kept, 0);
	net_kill(&pw.net, 3);
	net_await_closed(&pw.net, 3);
	for (uint32_t i = 0; i < 3; i++)
		cr_expect(await_state(i, 3, "down"));
	check_same_homes(3);
	for (uint64_t e = 1; e < 4; e++)
		for (uint32_t rank = 0; rank < 3; rank++)
			cr_expect(peer_world_epoch(&pw, rank, e, &longest));
	cr_expect_lt(longest, LONG_NS, "%ld ms", longest / 1000000);
	uint64_t more = pfs_of_three() - before;
	cr_expect_leq(more, kept + kept / 50, "%lu, %lu", more, kept);
	cr_expect_eq(reader_errors() + peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

static void *kill_soon(void *arg)
{
	(void)arg;
	while (net_sent(&pw.net, P_DATA) < 40)
		usleep(100);
	net_kill(&pw.net, 2);
	return NULL;
}

/* Killed while all read: neither those that are left nor the one cut off see an error. */
Test(peers, killed_in_mid_epoch)
{
	struct peer_world_config c = job(4, 200);
	int64_t longest = 0;

	begin(&c);
	net_set_faults(&pw.net, &(struct net_faults){ .delay_us = 2000 });
	pthread_t killer;
	pthread_create(&killer, NULL, kill_soon, NULL);
	cr_expect(peer_world_train(&pw, 0, 4, &longest));
	pthread_join(killer, NULL);
	cr_expect_lt(longest, LONG_NS, "%ld ms", longest / 1000000);
	check_same_homes(2);
	cr_expect_eq(reader_errors() + peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}

static void *read_what_1_keeps(void *arg)
{
	(void)arg;
	for (uint32_t id = 0; id < clair_catalog_count(pw.worlds[0].catalog); id++)
		if (clair_peers_home(pw.net.nodes[0].peers, id) == 1)
			cr_expect(world_read(&pw.worlds[0], id, true));
	return NULL;
}

/* A stage goes while its buffers are on their way to another node. */
Test(peers, stage_goes_while_it_sends)
{
	struct peer_world_config c = unknown_job(2);
	int64_t end = clair_now_ns() + 30 * CLAIR_NS_PER_S;
	pthread_t reader;

	begin(&c);
	net_set_stuck(&pw.net, 0, true);
	pthread_create(&reader, NULL, read_what_1_keeps, NULL);
	while (!net_sent(&pw.net, P_DATA) && clair_now_ns() < end)
		usleep(1000);
	cr_expect_gt(net_sent(&pw.net, P_DATA), 0);
	/* It takes nothing, which must not hold up what node 1 stages. */
	struct clair_stage *st = pw.worlds[1].stage;
	pthread_mutex_lock(&st->lock);
	cr_expect_gt(st->sending_bytes, 0);
	cr_expect_eq(st->inflight_bytes, 0);
	pthread_mutex_unlock(&st->lock);
	peer_world_end_node(&pw, 1);
	net_set_stuck(&pw.net, 0, false);
	pthread_join(reader, NULL);
	while (net_waiting(&pw.net, 1) && clair_now_ns() < end)
		usleep(1000);
	peer_world_end(&pw);
}

/* A stage that waits for others ends all the same, without leaving threads behind. */
Test(peers, stops_while_it_asks)
{
	struct peer_world_config c = unknown_job(2);
	int64_t end = clair_now_ns() + 30 * CLAIR_NS_PER_S;
	pthread_t reader;

	begin(&c);
	net_set_faults(&pw.net, &(struct net_faults){ .lose = 1000, .kinds = 1 << P_DATA });
	pthread_create(&reader, NULL, read_what_1_keeps, NULL);
	while (!net_sent(&pw.net, P_DATA) && clair_now_ns() < end)
		usleep(1000);
	int64_t begun = clair_now_ns();
	clair_stage_stop(pw.worlds[0].stage);
	cr_expect_not(pw.worlds[0].stage->abandoned);
	pthread_join(reader, NULL); /* the source has it all */
	cr_expect_lt(clair_now_ns() - begun, LONG_NS);
	peer_world_end(&pw);
}

/* The source has another file now: all readers get it, through whatever node. */
Test(peers, changed_on_the_source)
{
	struct peer_world_config c = unknown_job(2);
	char path[4200], relative[4096];

	begin(&c);
	uint32_t changed = 0;
	for (uint32_t id = 0; id < clair_catalog_count(pw.worlds[0].catalog); id++) {
		const struct clair_entry *e = clair_catalog_entry(pw.worlds[0].catalog, id);
		if (e->parent != pw.worlds[0].folder_id || id % 3)
			continue;
		clair_catalog_path(pw.worlds[0].catalog, id, relative, sizeof relative);
		snprintf(path, sizeof path, "%s/%s", pw.worlds[0].folder, relative);
		FILE *f = fopen(path, id % 2 ? "r+" : "w");
		cr_assert(f);
		fprintf(f, "changed");
		fclose(f);
		changed++;
		for (uint32_t i = 0; i < 2; i++)
			cr_expect(world_read(&pw.worlds[i], id, true), "%s by node %u", path, i);
	}
	cr_expect_gt(changed, FILES / 4);
	cr_expect_eq(reader_errors(), 0);
	peer_world_end(&pw);
}

Test(peers, what_is_seen)
{
	struct peer_world_config c = job(4, 130);
	json_t *o = json_object(), *peer;
	uint64_t in = 0, home = 0;
	size_t i;

	begin(&c);
	cr_expect(peer_world_train_together(&pw, 0, 2, NULL));
	for (i = 0; i < 4; i++)
		cr_expect_eq(clair_stage_wait_full(pw.worlds[i].stage, 30000), 0);
	cr_assert_eq(clair_peers_json(pw.net.nodes[1].peers, o), 0);
	cr_expect_eq(json_integer_value(json_object_get(o, "node")), 1);
	cr_expect_eq(json_integer_value(json_object_get(o, "nodes")), 4);
	cr_expect_eq(json_array_size(json_object_get(o, "peers")), 3);
	json_array_foreach(json_object_get(o, "peers"), i, peer) {
		char host[16];
		json_int_t node = json_integer_value(json_object_get(peer, "node"));
		snprintf(host, sizeof host, "host%d", (int)node);
		cr_expect_str_eq(json_string_value(json_object_get(peer, "host")), host);
		cr_expect_str_eq(json_string_value(json_object_get(peer, "state")), "up");
		in += (uint64_t)json_integer_value(json_object_get(peer, "bytes_in"));
		home += (uint64_t)json_integer_value(json_object_get(peer, "home_bytes"));
		cr_expect_eq(json_integer_value(json_object_get(peer, "failures")), 0);
		cr_expect_gt(json_integer_value(json_object_get(peer, "latency_p99_us")), 0);
	}
	cr_expect_eq(in, pw.worlds[1].stats.peer.bytes);
	cr_expect_eq(home + home_bytes(1), world_dataset(&pw.worlds[0]));
	json_decref(o);
	peer_world_end(&pw);
}
