/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of several pieces, through the whole stage. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "stage_world.h"
#include "stats.h"

#define WORDS { "seed", "42", "sampler", "torch-distributed", "index", "sorted" }
#define FILES 20
#define LARGE ((60u << 20) + 4321)
#define WAIT_MS 30000
#define MIB (1ull << 20)

static char folder[64];
static struct clair_disk *disk;

static void open_disk(struct world *w, uint64_t bytes)
{
	struct clair_disk_config config = { .path = folder, .bytes = bytes };
	char *error = NULL;

	cr_assert_eq(clair_disk_open(&config, w->catalog, &disk, &error), 0, "%s", error);
}

/* A stage over W's files with the directory. */
static void mount_disk(struct world *w, const struct world_config *c)
{
	struct clair_stage_config again = {
		.catalog = w->catalog, .source = w->source, .kernel = &w->kernel,
		.disks = &disk, .disk_count = 1, .stats = &w->stats, .ram = c->ram,
		.staging = c->staging, .keep = c->keep,
	};

	for (uint32_t id = 0; id < clair_catalog_count(w->catalog); id++)
		world_lose(w, id);
	cr_assert_eq(clair_stage_new(&again, &w->stage), 0);
	cr_assert_eq(world_set_stream(w, c->words), 0);
	cr_assert_eq(clair_stage_start(w->stage), 0);
}

static void unmount_disk(struct world *w)
{
	clair_stage_stop(w->stage);
	clair_stage_free(w->stage);
	clair_disk_close(disk);
}

static void begin_disk(struct world *w, const struct world_config *c, uint64_t bytes)
{
	strcpy(folder, "/tmp/clairfs-large-XXXXXX");
	cr_assert(mkdtemp(folder));
	world_begin(w, c);
	clair_stage_free(w->stage);
	open_disk(w, bytes);
	mount_disk(w, c);
}

static void end_disk(struct world *w)
{
	char command[128];

	world_end(w);
	clair_disk_close(disk);
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	cr_expect_eq(system(command), 0);
}

static void train(struct world *w, const struct world_config *c, uint64_t from, uint64_t to,
		  bool paced)
{
	for (uint64_t e = from; e < to; e++) {
		struct clair_epoch *order = world_order(w, c->words, e, 0);
		for (uint32_t i = 0; i < order->count; i++) {
			if (paced)
				cr_assert_eq(clair_stage_wait_full(w->stage, WAIT_MS), 0);
			cr_assert(world_read(w, order->ids[i], true), "epoch %lu entry %u", e, i);
		}
		clair_epoch_put(order);
	}
}

TestSuite(stage_large, .timeout = 100);

/* Parallel pieces share one open file. */
Test(stage_large, one_open_a_fetch)
{
	struct world_config c = { .files = FILES, .large = LARGE, .staging = 80 * MIB,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS, .threads = 8 };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
	train(&w, &c, 0, 1, true);
	cr_expect_eq(w.stats.pfs_opens, FILES + 1);
	cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w));
	cr_expect_eq(world_sums(&w).staged, FILES + 1);
	world_end(&w);
}

/* Pushes hang: READs get what workers have loaded, load the other pieces themselves, and
 * nothing is fetched twice. */
Test(stage_large, readers_come_first)
{
	struct world_config c = { .files = 1, .large = 45 << 20, .ram = 80 * MIB, .threads = 2,
				  .staging = 60 * MIB, .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	uint32_t id = clair_catalog_find(w.catalog, "train/large.png");
	w.hang = true;
	cr_assert_eq(clair_stage_start(w.stage), 0);
	while (!atomic_load(&w.hanging))
		usleep(1000);
	if (!world_is_resident(&w, id))
		cr_assert(world_read(&w, id, true));
	pthread_mutex_lock(&w.lock);
	w.hang = false;
	pthread_cond_broadcast(&w.resume);
	pthread_mutex_unlock(&w.lock);
	cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
	cr_expect_eq(w.stats.pfs_opens, 2);
	cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w), "%lu of %lu",
		     (uint64_t)w.stats.pfs.bytes, world_dataset(&w));
	cr_expect(world_is_resident(&w, id));
	train(&w, &c, 1, 2, true);
	cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w));
	world_end(&w);
}

/* A directory takes it, whatever its size; the next mount needs nothing of the source. */
Test(stage_large, directory)
{
	struct world_config c = { .files = FILES, .large = LARGE, .staging = 70 * MIB,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	begin_disk(&w, &c, 200 * MIB);
	train(&w, &c, 0, 3, true);
	cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w));
	unmount_disk(&w);
	open_disk(&w, 200 * MIB);
	mount_disk(&w, &c);
	train(&w, &c, 0, 2, false);
	cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w));
	cr_expect_eq(w.stats.pfs_opens, FILES + 1);
	cr_expect_eq(w.stats.error_cache + w.stats.error_hash, 0);
	end_disk(&w);
}

/* No room for it there: the rest goes on. */
Test(stage_large, directory_too_small)
{
	struct world_config c = { .files = FILES, .large = LARGE, .staging = 70 * MIB,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	begin_disk(&w, &c, 30 * MIB);
	train(&w, &c, 0, 3, true);
	/* Some of it may still be staged when the next epoch begins. */
	cr_expect_leq(w.stats.pfs.bytes, world_dataset(&w) + 2 * LARGE);
	cr_expect_leq(w.stats.pfs_opens, FILES + 3);
	cr_expect_eq(w.stats.error_cache, 0);
	end_disk(&w);
}

/* One byte of its copy is wrong: that piece is fetched and mended, nothing else. */
Test(stage_large, damaged_piece)
{
	struct world_config c = { .files = 1, .size = 1000, .large = 25 << 20,
				  .staging = 40 * MIB, .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	char path[128], byte;
	struct world w;

	begin_disk(&w, &c, 200 * MIB);
	train(&w, &c, 0, 1, true);
	cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
	unmount_disk(&w);
	snprintf(path, sizeof path, "%s/segment-000000", folder);
	int fd = open(path, O_RDWR);
	cr_assert_eq(pread(fd, &byte, 1, 13 << 20), 1);
	byte ^= 1;
	cr_assert_eq(pwrite(fd, &byte, 1, 13 << 20), 1);
	close(fd);
	for (int mount = 0; mount < 2; mount++) {
		open_disk(&w, 200 * MIB);
		mount_disk(&w, &c);
		train(&w, &c, 0, 2, true);
		cr_expect_eq(w.stats.error_hash, 1);
		cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w) + CLAIR_DISK_PIECE);
		if (mount == 0)
			unmount_disk(&w);
	}
	end_disk(&w);
}

/* A byte of the memory that the arena has at AT; found as whoever breaks memory would. */
static void flip_arena(off_t at)
{
	DIR *d = opendir("/proc/self/fd");
	char path[300], target[300];
	int found = 0;

	for (struct dirent *e; (e = readdir(d));) {
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		ssize_t n = readlink(path, target, sizeof target - 1);
		if (n < 0)
			continue;
		target[n] = 0;
		if (!strstr(target, "clairfs-arena"))
			continue;
		char byte;
		int fd = atoi(e->d_name);
		cr_assert_eq(pread(fd, &byte, 1, at), 1);
		byte ^= 1;
		cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
		found++;
	}
	closedir(d);
	cr_assert_eq(found, 1);
}

/* What the arena has is checked piece by piece, pushed or handed out. */
static void damaged_arena(bool pushed)
{
	struct world_config c = { .files = 1, .size = 1000, .large = 25 << 20, .ram = 40 * MIB,
				  .staging = 40 * MIB, .keep = CLAIR_KEEP_ARENA, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	uint32_t id = clair_catalog_find(w.catalog, "train/large.png");
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 1, true);
	cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
	flip_arena(13 << 20);
	world_lose(&w, id);
	if (pushed) /* as the tier's copy, in the next epochs */
		train(&w, &c, 1, 4, true);
	cr_assert(world_read(&w, id, false));
	cr_expect(pushed || w.stats.error_hash > 0);
	world_end(&w);
}

Test(stage_large, damaged_arena_handed_out)
{
	damaged_arena(false);
}

Test(stage_large, damaged_arena_pushed)
{
	damaged_arena(true);
}

/* Larger than staging: read through, with one open a pass, and the others as ever. */
Test(stage_large, larger_than_any_budget)
{
	struct world_config c = { .files = FILES, .large = LARGE, .staging = 8 * MIB,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 1, true);
	world_lose(&w, clair_catalog_find(w.catalog, "train/large.png"));
	train(&w, &c, 1, 2, true);
	cr_expect_eq(world_sums(&w).staged, 2 * FILES);
	cr_expect_eq(world_sums(&w).missed, 2);
	cr_expect_geq(w.stats.pfs.bytes, 2ull * LARGE);
	cr_expect_leq(w.stats.pfs.bytes, 2 * world_dataset(&w) + 4 * MIB);
	cr_expect_leq(w.stats.pfs_opens, 2 * (FILES + 1));
	world_end(&w);
}
