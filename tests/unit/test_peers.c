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
#include "stats.h"

#define FILES 240
#define SIZE 30000
#define WORDS                                                                           \
	{                                                                               \
		"seed", "42", "sampler", "torch-distributed", "index", "sorted",        \
			"epochs", "4"                                                   \
	}
/* A read that a fault holds up: beyond what it takes without, on a loaded machine. */
#define EXTRA_NS (2 * CLAIR_NS_PER_S)

static struct peer_world pw;

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

static void begin(const struct peer_world_config *config)
{
	peer_world_begin(&pw, config);
}

/* --- all is well --------------------------------------------------------------------------- */

static void all_fits(unsigned nodes)
{
	struct peer_world_config c = job(nodes, 130);

	begin(&c);
	uint64_t dataset = world_dataset(&pw.worlds[0]);
	cr_expect(peer_world_train(&pw, 0, 3, NULL));
	cr_expect_eq(peer_world_pfs(&pw), dataset, "%lu of %lu", peer_world_pfs(&pw), dataset);
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
	struct peer_world_config c = job(4, 130);

	c.unknown = true;
	memset(c.world.words, 0, sizeof c.world.words);
	c.world.words[0] = "index";
	c.world.words[1] = "sorted";
	begin(&c);
	uint64_t dataset = world_dataset(&pw.worlds[0]);
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
	cr_expect_eq(peer_world_pfs(&pw), dataset, "%lu of %lu", peer_world_pfs(&pw), dataset);
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
	uint64_t dataset = world_dataset(&pw.worlds[0]);
	cr_expect(peer_world_train_together(&pw, 0, 4, NULL));
	cr_expect_leq(peer_world_pfs(&pw), dataset + dataset / 50, "%lu of %lu",
		      peer_world_pfs(&pw), dataset);
	cr_expect_eq(peer_world_errors(&pw), 0);
	peer_world_end(&pw);
}
