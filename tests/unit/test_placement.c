/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "placement_job.h"

/* What holds for any placement of ours. */
static void check_all(struct job *j, struct clair_placement *p)
{
	uint64_t filled[NODES] = { 0 }, copied = 0, largest = 0;
	uint32_t nodes = j->input.node_count;

	for (uint32_t id = 0; id < j->input.count; id++) {
		uint16_t home = clair_placement_home(p, id);
		if (home != CLAIR_NO_NODE) {
			cr_assert_lt(home, nodes);
			filled[home] += j->sizes[id];
		}
		if (clair_placement_copy(p, id)) {
			cr_assert_neq(home, j->input.self);
			copied += j->sizes[id];
		}
	}
	for (uint32_t i = 0; i < nodes; i++) {
		cr_assert_eq(filled[i], clair_placement_filled(p, i));
		cr_assert_leq(filled[i], job_room_of(j, i));
		if (job_room_of(j, i) - filled[i] > largest)
			largest = job_room_of(j, i) - filled[i];
	}
	for (uint32_t id = 0; id < j->input.count; id++)
		cr_assert(clair_placement_home(p, id) != CLAIR_NO_NODE ||
				  j->sizes[id] > largest,
			  "%u would still fit", id);
	cr_assert_leq(copied, job_room_of(j, j->input.self) - filled[j->input.self]);
}

Test(placement, policies)
{
	cr_assert_str_eq(clair_policy_at(0)->name, "clairfs");
	cr_assert_eq(clair_policy_find("nopfs"), clair_policy_at(1));
	cr_assert_null(clair_policy_at(2));
	cr_assert_null(clair_policy_find("none"));
}

Test(placement, any_input)
{
	static const char *const orders[] = {
		"seed=3", "seed=4 drop_last=1", "sampler=sequential", "seed=auto",
		"seed=5 epochs=0", "seed=6 epochs=2", "seed=1 sampler=nopfs batch=64",
		"seed=2 sampler=torch-random",
	};

	for (int round = 0; round < 240; round++) {
		struct job j;
		uint32_t nodes = 1 + (uint32_t)job_draw(9);
		uint64_t hash = 0;

		job_init(&j, (uint32_t)job_draw(round % 3 ? 1500 : 12), nodes,
			 nodes * (1 + (uint32_t)job_draw(3)),
			 1 + job_draw(round & 32 ? 20000000000 : 5000), orders[round % 8]);
		job_room(&j, (uint32_t)job_draw(250), round & 8);
		if (round & 16)
			j.nodes[job_draw(nodes)] = (struct clair_placement_node){ 0 };
		for (uint32_t self = 0; self < nodes; self++) {
			struct clair_placement *p = job_place(&j, "clairfs", self);
			check_all(&j, p);
			if (self == 0)
				hash = clair_placement_hash(p);
			cr_assert_eq(clair_placement_hash(p), hash);
			clair_placement_free(p);
			clair_placement_free(job_place(&j, "nopfs", self));
		}
		job_finish(&j);
	}
}

Test(placement, even_and_at_the_first_reader)
{
	for (int uneven = 0; uneven < 2; uneven++) {
		struct job j;
		uint32_t n = 20000, kept = 0, read = 0;

		job_init(&j, n, 8, 16, 200000, "seed=42");
		job_room(&j, 130, uneven);
		uint8_t(*reads)[NODES] = calloc(n, sizeof *reads);
		uint16_t *first = malloc(n * sizeof *first);
		job_reads(&j, 8, reads, first);
		struct clair_placement *p = job_place(&j, "clairfs", 0);
		check_all(&j, p);
		for (uint32_t i = 0; i < 8; i++) {
			double level = (double)clair_placement_filled(p, i) /
				       (double)job_room_of(&j, i);
			cr_assert_lt(fabs(level * 1.3 - 1), 0.02, "node %u: %f", i, level);
		}
		for (uint32_t id = 0; id < n; id++) {
			uint16_t home = clair_placement_home(p, id);
			cr_assert_neq(home, CLAIR_NO_NODE);
			kept += home == first[id];
			read += reads[id][home] > 0;
		}
		/* Uneven: the small ones have no room for all that they read first; it goes
		 * to others that read it (66 % would by chance). */
		cr_assert_gt(kept, n * (uneven ? 70u : 97u) / 100, "%u", kept);
		cr_assert_gt(read, n * (uneven ? 97u : 99u) / 100, "%u", read);
		clair_placement_free(p);
		free(reads);
		free(first);
		job_finish(&j);
	}
}

/* Several ranks read a sample in one epoch: the earliest keeps it, one of them when they are
 * as early. */
Test(placement, repeated_in_an_epoch)
{
	struct job j;
	struct clair_indices ids = { 0 };
	uint32_t n = 5000, kept = 0, total = 0, filled[4] = { 0 };

	job_init(&j, n, 4, 4, 1, "seed=5 sampler=torchvision-ra");
	job_room(&j, 200, false);
	uint64_t *first = calloc(n, sizeof *first);   /* epoch, position, from 1 on */
	uint32_t *earliest = calloc(n, sizeof *earliest); /* bits */
	for (uint32_t e = 0; e < 8; e++) {
		for (uint32_t rank = 0; rank < 4; rank++) {
			cr_assert_eq(clair_stream_ids(j.stream, e, rank, &ids), 0);
			for (uint64_t i = 0; i < ids.count; i++) {
				uint32_t id = ids.at[i];
				uint64_t when = ((uint64_t)e << 32) + i + 1;
				if (!first[id] || when < first[id]) {
					first[id] = when;
					earliest[id] = 0;
				}
				earliest[id] |= (when == first[id]) << rank;
			}
		}
	}
	struct clair_placement *p = job_place(&j, "clairfs", 0);
	check_all(&j, p);
	for (uint32_t id = 0; id < n; id++) {
		uint16_t home = clair_placement_home(p, id);
		total += first[id] > 0;
		kept += earliest[id] >> home & 1;
		filled[home]++;
	}
	cr_assert_gt(total, n / 2);
	/* The last rank is earliest for 46 % and has room in its share for 25. */
	cr_assert_gt(kept, total * 77 / 100, "%u of %u", kept, total);
	for (int i = 0; i < 4; i++)
		cr_assert_lt(abs((int)filled[i] - 1250), 20);
	clair_placement_free(p);
	clair_indices_finish(&ids);
	free(first);
	free(earliest);
	job_finish(&j);
}

/* Share of bytes without a home by rank and tenth of what it reads in an epoch. */
static void check_overflow(struct job *j, const struct clair_placement *p, uint64_t epoch,
			   double want, double tolerance)
{
	struct clair_indices ids = { 0 };

	for (uint32_t rank = 0; rank < clair_stream_world(j->stream); rank++) {
		double left[10] = { 0 }, all[10] = { 0 };

		cr_assert_eq(clair_stream_ids(j->stream, epoch, rank, &ids), 0);
		for (size_t i = 0; i < ids.count; i++) {
			double size = (double)j->sizes[ids.at[i]];
			all[i * 10 / ids.count] += size;
			if (clair_placement_home(p, ids.at[i]) == CLAIR_NO_NODE)
				left[i * 10 / ids.count] += size;
		}
		for (int k = 0; k < 10; k++)
			cr_assert_lt(fabs(left[k] / all[k] - want), tolerance,
				     "rank %u, tenth %d: %f", rank, k, left[k] / all[k]);
	}
	clair_indices_finish(&ids);
}

Test(placement, overflow_is_spread)
{
	static const char *const orders[] = { "seed=1 shuffle=0", "seed=7", "seed=9 drop_last=1" };

	for (int i = 0; i < 3; i++) {
		struct job j;

		job_init(&j, 120001, 4, 4, 1000, orders[i]);
		job_room(&j, 60, i == 2);
		struct clair_placement *p = job_place(&j, "clairfs", 1);
		check_all(&j, p);
		check_overflow(&j, p, 0, 0.4, 0.01);
		check_overflow(&j, p, 3, 0.4, i ? 0.04 : 0.01);
		clair_placement_free(p);
		job_finish(&j);
	}
}

/* Where samples stay with ranks, that goes before filling evenly. */
Test(placement, ties_to_ranks)
{
	static const char *const orders[] = {
		"seed=1 sampler=dali-file random_shuffle=1 stick_to_shard=1",
		"seed=1 shuffle=0 drop_last=1",
	};

	for (int k = 0; k < 2; k++) {
		struct job j;
		struct clair_indices ids = { 0 };

		job_init(&j, 4000, 4, 8, 100000, orders[k]);
		job_room(&j, 120, false);
		struct clair_placement *p = job_place(&j, "clairfs", 0);
		for (uint32_t rank = 0; rank < 8; rank++) {
			cr_assert_eq(clair_stream_ids(j.stream, 5, rank, &ids), 0);
			cr_assert_eq(ids.count, 500);
			for (size_t i = 0; i < ids.count; i++)
				cr_assert_eq(clair_placement_home(p, ids.at[i]), rank / 2);
		}
		clair_placement_free(p);
		/* the capacities differ: the small ones keep what they can */
		job_room(&j, 120, true);
		p = job_place(&j, "clairfs", 0);
		check_all(&j, p);
		for (uint32_t i = 0; i < 2; i++)
			cr_assert_gt(clair_placement_filled(p, i) + 200000, job_room_of(&j, i));
		clair_indices_finish(&ids);
		clair_placement_free(p);
		job_finish(&j);
	}
}

Test(placement, unknown_order)
{
	struct job j;

	job_init(&j, 30000, 6, 6, 10000, "seed=auto");
	j.input.node_of_rank = NULL;
	job_room(&j, 150, true);
	struct clair_placement *p = job_place(&j, "clairfs", 0);
	check_all(&j, p);
	for (uint32_t i = 0; i < 6; i++)
		cr_assert_lt(fabs((double)clair_placement_filled(p, i) * 1.5 /
					  (double)job_room_of(&j, i) - 1),
			     0.02);
	clair_placement_free(p);
	job_room(&j, 50, true);
	p = job_place(&j, "clairfs", 0);
	check_all(&j, p);
	uint64_t left[10] = { 0 };
	for (uint32_t id = 0; id < 30000; id++)
		if (clair_placement_home(p, id) == CLAIR_NO_NODE)
			left[id / 3000] += j.sizes[id];
	for (int k = 0; k < 10; k++)
		cr_assert_lt(fabs((double)left[k] * 20 / (double)j.bytes - 1), 0.06);
	clair_placement_free(p);
	p = job_place(&j, "nopfs", 0);
	cr_assert_gt(clair_placement_filled(p, 5), j.bytes / 10);
	clair_placement_free(p);
	job_finish(&j);
}

/* More ranks than are worth looking at one by one, all reading everything. */
Test(placement, all_read_all)
{
	struct job j;
	uint64_t copied = 0;

	job_init(&j, 20000, 8, 64, 100, "seed=1 sampler=torch-random");
	job_room(&j, 200, false);
	struct clair_placement *p = job_place(&j, "clairfs", 5);
	check_all(&j, p);
	for (uint32_t i = 0; i < 8; i++)
		cr_assert_lt(fabs((double)clair_placement_filled(p, i) * 8 / (double)j.bytes - 1),
			     0.02);
	for (uint32_t id = 0; id < 20000; id++)
		copied += clair_placement_copy(p, id) ? j.sizes[id] : 0;
	cr_assert_gt(copied, j.bytes / 9);
	clair_placement_free(p);
	p = job_place(&j, "nopfs", 5);
	cr_assert_gt(clair_placement_filled(p, 5), j.bytes / 9);
	clair_placement_free(p);
	job_finish(&j);
}

Test(placement, copies_are_what_is_read_most)
{
	struct job j;
	uint32_t n = 6000, least = 255, most = 0;
	uint64_t copied = 0;

	job_init(&j, n, 4, 4, 100, "seed=11");
	job_room(&j, 160, false);
	uint8_t(*reads)[NODES] = calloc(n, sizeof *reads);
	uint16_t *first = malloc(n * sizeof *first);
	job_reads(&j, 8, reads, first);
	struct clair_placement *p = job_place(&j, "clairfs", 2);
	check_all(&j, p);
	for (uint32_t id = 0; id < n; id++) {
		uint32_t own = reads[id][2];
		if (clair_placement_home(p, id) == 2)
			continue;
		if (clair_placement_copy(p, id)) {
			copied += j.sizes[id];
			least = own < least ? own : least;
		} else {
			most = own > most ? own : most;
		}
	}
	cr_assert_leq(most, least);
	cr_assert_geq(least, 1);
	/* all of the room that is left: 15 % of the bytes */
	cr_assert_gt(copied + 200, job_room_of(&j, 2) - clair_placement_filled(p, 2));
	clair_placement_free(p);
	free(reads);
	free(first);
	job_finish(&j);
}

Test(placement, edges)
{
	struct job j;
	struct clair_placement *p;

	job_init(&j, 0, 1, 1, 1, "seed=1");
	p = job_place(&j, "clairfs", 0);
	cr_assert_eq(clair_placement_home(p, 0), CLAIR_NO_NODE);
	cr_assert_eq(clair_placement_filled(p, 0), 0);
	cr_assert_not(clair_placement_copy(p, 0));
	clair_placement_free(p);
	job_finish(&j);

	/* one node has it all; the others have nothing */
	job_init(&j, 100, 3, 3, 50, "seed=1");
	j.nodes[1].cache = UINT64_MAX;
	j.nodes[1].ram = UINT64_MAX;
	p = job_place(&j, "clairfs", 0);
	for (uint32_t id = 0; id < 100; id++)
		cr_assert_eq(clair_placement_home(p, id), 1);
	clair_placement_free(p);
	p = job_place(&j, "nopfs", 1);
	for (uint32_t id = 0; id < 100; id++)
		cr_assert(clair_placement_home(p, id) == 1 || !clair_placement_copy(p, id));
	clair_placement_free(p);
	/* a rank without a node */
	j.node_of_rank[1] = CLAIR_NO_NODE;
	p = job_place(&j, "clairfs", 0);
	cr_assert_eq(clair_placement_filled(p, 1), j.bytes);
	clair_placement_free(p);
	j.node_of_rank[1] = 3;
	cr_assert_eq(clair_policy_at(0)->place(&j.input, &p), -EINVAL);
	j.node_of_rank[1] = 0;
	j.ranks = NULL;
	cr_assert_eq(clair_policy_at(0)->place(&j.input, &p), -EINVAL);
	j.ranks = j.node_of_rank;
	j.input.node_count = 0;
	cr_assert_eq(clair_policy_at(1)->place(&j.input, &p), -EINVAL);
	job_finish(&j);
}

/* --- nodes that are gone ------------------------------------------------------------ */

static bool among_is_sound(const struct clair_placement *p, const struct job *j,
			   uint64_t before, uint64_t after, uint64_t *got)
{
	for (uint32_t id = 0; id < j->input.count; id++) {
		uint16_t was = clair_placement_home_among(p, id, &before);
		uint16_t now = clair_placement_home_among(p, id, &after);

		if (!(after >> now & 1) || ((after >> was & 1) && now != was))
			return false; /* a dead node; or it moved though its node lives */
		if (now != was)
			got[now] += j->sizes[id];
	}
	return true;
}

Test(placement, homes_of_the_dead)
{
	struct job j;
	const uint64_t all = (1ull << 12) - 1;

	job_init(&j, 40000, 12, 12, 1000, "seed=3");
	job_room(&j, 120, true);
	struct clair_placement *p = job_place(&j, "clairfs", 0);
	for (uint32_t id = 0; id < 40000; id++)
		cr_assert_eq(clair_placement_home_among(p, id, &all),
			     clair_placement_home(p, id));
	/* node k has k + 1 of 78 shares: the biggest's fall to the others as these have room */
	uint64_t got[NODES] = { 0 };
	cr_assert(among_is_sound(p, &j, all, all & ~(1ull << 11), got));
	for (uint32_t i = 0; i < 11; i++)
		cr_assert_lt(fabs((double)got[i] * 78 * 66 / (double)(i + 1) / 12 /
					  (double)j.bytes - 1),
			     0.3, "node %u", i);
	/* any that live, down to one of the smallest */
	uint64_t before = all;
	for (int k = 0; k < 11; k++) {
		uint64_t after = before & ~(1ull << (11 - k));
		cr_assert(among_is_sound(p, &j, before, after, got));
		before = after;
	}
	cr_assert_eq(before, 1);
	const uint64_t none = 0;
	cr_assert_eq(clair_placement_home_among(p, 7, &none), CLAIR_NO_NODE);
	clair_placement_free(p);

	/* what has no home gets none */
	job_room(&j, 0, false);
	p = job_place(&j, "clairfs", 0);
	cr_assert_eq(clair_placement_home_among(p, 7, &all), CLAIR_NO_NODE);
	clair_placement_free(p);
	job_finish(&j);
}

/* --- streams of a catalog ----------------------------------------------------------- */

static void put(int at, const char *name, size_t size)
{
	autoclose int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
}

static struct clair_catalog *make_catalog(char *top)
{
	struct clair_catalog *catalog;
	char name[32];

	cr_assert(mkdtemp(top));
	autoclose int fd = open(top, O_RDONLY | O_DIRECTORY);
	mkdirat(fd, "a", 0755);
	mkdirat(fd, "b", 0755);
	for (int i = 0; i < 30; i++) {
		snprintf(name, sizeof name, "%c/%02d", i < 20 ? 'a' : 'b', i);
		put(fd, name, 100);
	}
	cr_assert_eq(clair_catalog_walk(fd, 1, NULL, NULL, &catalog), 0);
	return catalog;
}

static struct clair_stream *stream_at(const struct clair_catalog *catalog, const char *path,
				      const char *text)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream;
	char *error = NULL;

	job_words(text, &words);
	cr_assert_eq(clair_stream_new(catalog, clair_catalog_find(catalog, path), &words,
				      &stream, &error), 0, "%s", error);
	clair_words_finish(&words);
	return stream;
}

/* The root's stream reads all once; b's reads its own for ever. */
Test(placement, streams_of_a_catalog)
{
	char top[] = "/tmp/clairfs-test-XXXXXX", command[64];
	struct clair_catalog *catalog = make_catalog(top);
	struct clair_stream *streams[] = {
		stream_at(catalog, "", "seed=1 epochs=1 world=2 index=sorted"),
		stream_at(catalog, "b", "seed=2 world=2 index=sorted"),
	};
	static const uint16_t ranks[] = { 0, 1 }, others[] = { 1, 1 };
	const uint16_t *const node_of_rank[] = { ranks, others };
	struct clair_placement_node nodes[2] = { { .ram = 500 }, { .cache = 1000 } };
	const struct clair_placement_input input = {
		.catalog = catalog, .nodes = nodes, .node_count = 2, .streams = streams,
		.stream_count = 2, .node_of_rank = node_of_rank,
	};
	struct clair_placement *p;
	uint32_t homes = 0;

	cr_assert_eq(clair_policy_at(0)->place(&input, &p), 0);
	for (uint32_t id = 0; id < clair_catalog_count(catalog); id++) {
		const struct clair_entry *e = clair_catalog_entry(catalog, id);
		uint16_t home = clair_placement_home(p, id);

		homes += home != CLAIR_NO_NODE;
		if (e->kind != CLAIR_FILE)
			cr_assert_eq(home, CLAIR_NO_NODE);
		else if (e->parent == clair_catalog_find(catalog, "b"))
			cr_assert_neq(home, CLAIR_NO_NODE); /* read more often */
	}
	cr_assert_eq(homes, 15);
	cr_assert_eq(clair_placement_filled(p, 0), 500);
	cr_assert_eq(clair_placement_filled(p, 1), 1000);
	clair_placement_free(p);

	/* With room for all, b's are where its own stream reads them. */
	nodes[0].ram = 6000;
	nodes[1].cache = 6000;
	cr_assert_eq(clair_policy_at(1)->place(&input, &p), 0);
	for (uint32_t id = 0; id < clair_catalog_count(catalog); id++)
		if (clair_catalog_entry(catalog, id)->parent == clair_catalog_find(catalog, "b"))
			cr_assert_eq(clair_placement_home(p, id), 1);
	clair_placement_free(p);
	clair_stream_free(streams[0]);
	clair_stream_free(streams[1]);
	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}
