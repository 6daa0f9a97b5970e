/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "stage_world.h"
#include "stats.h"

#define WORDS                                                                           \
	{                                                                               \
		"seed", "42", "sampler", "torch-distributed", "index", "sorted"         \
	}
#define FILES 200
#define MANY 3000 /* the tracker's windows are small against that */
#define WAIT_MS 30000

/* Reads EPOCHS epochs as one reader does; after every file waits for the stage when PACED. */
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

/* BEYOND: bytes that READs may bring in before the workers have dropped others. */
static void check_bound(struct world *w, const struct world_config *c, uint64_t epochs,
			uint64_t beyond)
{
	uint64_t bound = clair_pfs_bound(world_dataset(w), c->ram, epochs);
	uint64_t samples = w->stats.pfs.samples, opens = w->stats.pfs_opens;

	cr_expect_leq(w->stats.pfs.bytes, bound + bound / 100, "%lu of %lu",
		      (uint64_t)w->stats.pfs.bytes, bound);
	cr_expect_eq(samples, opens);
	cr_expect_leq(w->resident_most, (c->keep == CLAIR_KEEP_ARENA ? 0 : c->ram) * 1.1 +
						c->staging * 1.1 + beyond);
}

static void half_fits(enum clair_keep keep)
{
	struct world_config c = { .files = FILES, .ram = 10 << 20, .staging = 4 << 20,
				  .keep = keep, .words = { "seed", "42", "sampler",
				  "torch-distributed", "index", "sorted", "epochs", "5" } };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 5, true);
	check_bound(&w, &c, 5, 0);
	struct clair_epoch_stats sums = world_sums(&w);
	cr_expect_eq(sums.opens, 5 * FILES);
	cr_expect_eq(sums.staged, 5 * FILES);
	cr_expect_eq(sums.late + sums.missed + sums.unpredicted, 0);
	cr_expect_eq(w.stats.lost_samples, 0);
	world_end(&w);
}

Test(stage, half_fits_kernel)
{
	half_fits(CLAIR_KEEP_KERNEL);
}

Test(stage, half_fits_arena)
{
	half_fits(CLAIR_KEEP_ARENA);
}

static void fits(enum clair_keep keep)
{
	struct world_config c = { .files = FILES, .ram = 64 << 20, .staging = 4 << 20,
				  .keep = keep, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 3, true);
	check_bound(&w, &c, 3, 0);
	cr_expect_eq(w.stats.pfs_opens, FILES);
	cr_expect_eq(world_sums(&w).staged, 3 * FILES);
	world_end(&w);
}

Test(stage, fits_kernel)
{
	fits(CLAIR_KEEP_KERNEL);
}

Test(stage, fits_arena)
{
	fits(CLAIR_KEEP_ARENA);
}

/* A reader that never waits: bytes are right, nothing is read twice. */
Test(stage, reader_outruns)
{
	struct world_config c = { .files = FILES, .ram = 10 << 20, .staging = 4 << 20,
				  .keep = CLAIR_KEEP_KERNEL, .words = { "seed", "42", "sampler",
				  "torch-distributed", "index", "sorted", "epochs", "4" } };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 4, false);
	check_bound(&w, &c, 4, 2 * c.staging);
	struct clair_epoch_stats sums = world_sums(&w);
	cr_expect_eq(sums.opens, 4 * FILES);
	cr_expect_eq(sums.staged + sums.late + sums.missed, 4 * FILES);
	world_end(&w);
}

Test(stage, auto_keep)
{
	struct world_config c = { .files = 20, .ram = 64 << 20, .staging = 4 << 20,
				  .words = WORDS };

	for (int tells = 0; tells < 2; tells++) {
		struct world w;
		world_begin(&w, &c);
		w.cannot_tell = !tells;
		cr_assert_eq(clair_stage_start(w.stage), 0);
		cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
		json_t *o = json_object();
		clair_stage_json(w.stage, o);
		cr_expect_str_eq(json_string_value(json_object_get(o, "keep")),
				 tells ? "kernel" : "arena");
		json_decref(o);
		world_end(&w);
	}
}

/* Without a stream, or with an unknown order: every READ is answered, one open a file. */
Test(stage, plain)
{
	struct world_config c = { .files = 20, .ram = 64 << 20, .staging = 4 << 20,
				  .large = 9 << 20, .words = { "seed", "auto" } };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	uint32_t n = clair_catalog_count(w.catalog), files = 0;
	for (uint32_t id = 0; id < n; id++) {
		const struct clair_entry *e = clair_catalog_entry(w.catalog, id);
		if (e->kind != CLAIR_FILE)
			continue;
		cr_expect(world_read(&w, id, true));
		files += e->size <= 4 << 20;
	}
	cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w) + 5000);
	cr_expect_eq(world_sums(&w).staged, 0);
	world_end(&w);
}

/* Opens in an order of another seed: fetching ahead stops. */
Test(stage, wrong_seed)
{
	struct world_config c = { .files = 5000, .size = 500, .ram = 0, .staging = 512 << 10,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	const char *other[] = { "seed", "7", "sampler", "torch-distributed", "index", "sorted",
				NULL };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	struct clair_epoch *order = world_order(&w, other, 0, 0);
	for (uint32_t i = 0; i < order->count; i++) {
		cr_assert(world_read(&w, order->ids[i], true));
		if (i == 500) {
			cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
			cr_expect_leq(w.stats.pfs_opens, 3000);
		}
	}
	/* From then on only what was read was fetched. */
	cr_expect_leq(w.stats.pfs_opens, 7000);
	clair_epoch_put(order);
	world_end(&w);
}

Test(stage, lost_pages)
{
	struct world_config c = { .files = 20, .ram = 64 << 20, .staging = 4 << 20,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 1, true);
	for (uint32_t id = 0; id < clair_catalog_count(w.catalog); id++)
		if (clair_catalog_entry(w.catalog, id)->kind == CLAIR_FILE)
			world_lose(&w, id);
	train(&w, &c, 1, 2, true);
	struct clair_epoch_stats sums = world_sums(&w);
	cr_expect_eq(sums.missed + sums.late, 0);
	cr_expect_eq(w.stats.lost_samples, 20);
	world_end(&w);
}

Test(stage, large_in_pieces)
{
	struct world_config c = { .files = 20, .ram = 0, .staging = 32 << 20,
				  .large = (13 << 20) + 17, .keep = CLAIR_KEEP_KERNEL,
				  .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
	uint32_t id = clair_catalog_find(w.catalog, "train/large.png");
	cr_expect(world_is_resident(&w, id));
	cr_expect_str_eq(clair_stage_where(w.stage, id), "staged");
	cr_expect(world_read(&w, id, false));
	world_end(&w);
}

Test(stage, larger_than_budgets)
{
	struct world_config c = { .files = 20, .ram = 1 << 20, .staging = 4 << 20,
				  .large = 13 << 20, .keep = CLAIR_KEEP_KERNEL,
				  .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 2, true);
	world_end(&w);
}

static bool wait_for_count(atomic_int *count, int least)
{
	for (int i = 0; i < 3000 && atomic_load(count) < least; i++)
		poll(NULL, 0, 10);
	return atomic_load(count) >= least;
}

Test(stage, changed_file)
{
	struct world_config c = { .files = 20, .ram = 0, .staging = 300000,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;
	char path[200];

	world_begin(&w, &c);
	uint32_t id = clair_catalog_find(w.catalog, "train/00003.png");
	snprintf(path, sizeof path, "%s/train/00003.png", w.folder);
	struct stat st;
	stat(path, &st);
	FILE *f = fopen(path, "r+");
	fputs("another beginning", f);
	fclose(f);
	cr_assert_eq(truncate(path, st.st_size - 3000), 0);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 0, 1, true);
	cr_expect(clair_stage_is_changed(w.stage, id));
	cr_expect_eq(w.invalidated, 1);
	world_end(&w);
}

/* Told to have changed while its old bytes are being pushed: those are forgotten, too. */
Test(stage, changed_during_a_push)
{
	struct world_config c = { .files = 20, .ram = 0, .staging = 150000, .threads = 4,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	struct clair_epoch *e = world_order(&w, c.words, 0, 0);
	uint32_t id = e->ids[0];
	clair_epoch_put(e);
	w.hang = true;
	cr_assert_eq(clair_stage_start(w.stage), 0);
	cr_assert(wait_for_count(&w.hanging, 1));
	clair_stage_changed(w.stage, id);
	cr_expect(wait_for_count(&w.invalidated, 1));
	pthread_mutex_lock(&w.lock);
	w.hang = false;
	pthread_cond_broadcast(&w.resume);
	pthread_mutex_unlock(&w.lock);
	cr_expect(wait_for_count(&w.invalidated, 2));
	world_end(&w);
}

/* A push that hangs costs its worker: stop ends in time. */
Test(stage, stop_with_a_hanging_worker)
{
	struct world_config c = { .files = 20, .ram = 0, .staging = 4 << 20,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS, .threads = 2 };
	struct world *w = malloc(sizeof *w);

	world_begin(w, &c);
	w->hang = true;
	cr_assert_eq(clair_stage_start(w->stage), 0);
	while (!atomic_load(&w->hanging))
		usleep(1000);
	/* A READ of what hangs is answered, from the loaded bytes. */
	struct clair_epoch *order = world_order(w, c.words, 0, 0);
	cr_expect(world_read(w, order->ids[0], true));
	int64_t begun = clair_now_ns();
	clair_stage_stop(w->stage);
	cr_expect_lt(clair_now_ns() - begun, 10 * CLAIR_NS_PER_S);
	clair_stage_free(w->stage); /* left behind with its thread */
	clair_epoch_put(order);
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", w->folder);
	cr_expect_eq(system(command), 0);
}

/* A loader with workers: batches are opened out of order within a window; two local ranks
 * are read at once. */
Test(stage, workers_and_ranks)
{
	struct world_config c = { .files = FILES, .ram = 6 << 20, .staging = 6 << 20,
				  .keep = CLAIR_KEEP_KERNEL, .words = { "seed", "42",
				  "index", "sorted", "world", "2", "ranks", "0-1", "epochs", "3",
				  "batch", "4", "workers", "2" } };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	for (uint64_t e = 0; e < 3; e++) {
		struct clair_epoch *a = world_order(&w, c.words, e, 0);
		struct clair_epoch *b = world_order(&w, c.words, e, 1);
		for (uint32_t i = 0; i < a->count; i++) {
			/* Pairs of batches of 4, interleaved. */
			uint32_t k = i / 8 * 8 + (i % 2) * 4 + i % 8 / 2;
			if (i / 8 * 8 + 8 > a->count)
				k = i;
			cr_assert_eq(clair_stage_wait_full(w.stage, WAIT_MS), 0);
			cr_assert(world_read(&w, a->ids[k], true));
			cr_assert(world_read(&w, b->ids[i], true));
		}
		clair_epoch_put(a);
		clair_epoch_put(b);
	}
	struct clair_epoch_stats sums = world_sums(&w);
	cr_expect_eq(sums.opens, 3 * FILES);
	cr_expect_eq(sums.staged, 3 * FILES);
	check_bound(&w, &c, 3, 0);
	world_end(&w);
}

/* set_epoch is forgotten: epoch 0 again and again. */
Test(stage, same_epoch_again)
{
	struct world_config c = { .files = MANY, .size = 500, .ram = 0, .staging = 128 << 10,
				  .keep = CLAIR_KEEP_KERNEL, .words = { "seed", "42", "index", "sorted", "batch",
				  "1", "workers", "1" } };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	for (int pass = 0; pass < 4; pass++)
		train(&w, &c, 0, 1, true);
	struct clair_epoch_stats sums = world_sums(&w);
	/* The tracker needs some opens to see it, once. */
	cr_expect_geq(sums.staged, 4 * MANY - 60);
	cr_expect_leq(w.resident_most, c.staging * 1.1 + (128 << 10));
	world_end(&w);
}

/* A run that is resumed at epoch 5, then told to go to 9. */
Test(stage, resumed)
{
	struct world_config c = { .files = MANY, .size = 500, .ram = 0, .staging = 128 << 10,
				  .keep = CLAIR_KEEP_KERNEL, .words = { "seed", "42", "index", "sorted", "batch",
				  "1", "workers", "1" } };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	train(&w, &c, 5, 6, true);
	cr_expect_geq(world_sums(&w).staged, MANY - 60);
	cr_assert_eq(clair_stage_set_epoch(w.stage, w.folder_id, 9), 0);
	cr_expect_eq(clair_stage_set_epoch(w.stage, 0, 9), -ENOENT);
	uint64_t before = world_sums(&w).staged;
	train(&w, &c, 9, 10, true);
	cr_expect_eq(world_sums(&w).staged, before + MANY);
	world_end(&w);
}

/* A sample that a reader keeps open is not dropped. */
Test(stage, not_dropped_while_open)
{
	struct world_config c = { .files = FILES, .ram = 0, .staging = 2 << 20,
				  .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	struct clair_epoch *order = world_order(&w, c.words, 0, 0);
	atomic_fetch_add(&w.pages[order->ids[0]].readers, 1);
	train(&w, &c, 0, 1, true);
	cr_expect(world_is_resident(&w, order->ids[0]));
	cr_expect_gt(w.stats.dropped_bytes, world_dataset(&w) / 2);
	cr_expect_eq(world_sums(&w).staged, FILES);
	clair_epoch_put(order);
	world_end(&w);
}

/* What RAM does not keep goes to a directory; the next mount finds it there. */
Test(stage, directory)
{
	char folder[] = "/tmp/clairfs-cache-XXXXXX", *error = NULL;
	struct world_config c = { .files = FILES, .ram = 5 << 20, .staging = 8 << 20,
				  .large = 5 << 20, .keep = CLAIR_KEEP_KERNEL, .words = WORDS };
	struct clair_disk_config config = { .path = folder, .bytes = 64 << 20 };
	struct clair_disk *disk;
	struct world w;

	cr_assert(mkdtemp(folder));
	world_begin(&w, &c);
	/* The tier wants the catalog: the stage is made again with it. */
	clair_stage_free(w.stage);
	cr_assert_eq(clair_disk_open(&config, w.catalog, &disk, &error), 0, "%s", error);
	for (int mount = 0; mount < 2; mount++) {
		struct clair_stage_config again = {
			.catalog = w.catalog, .source = w.source, .kernel = &w.kernel,
			.disks = &disk, .disk_count = 1, .stats = &w.stats, .ram = c.ram,
			.staging = c.staging, .keep = c.keep,
		};
		cr_assert_eq(clair_stage_new(&again, &w.stage), 0);
		cr_assert_eq(world_set_stream(&w, c.words), 0);
		cr_assert_eq(clair_stage_start(w.stage), 0);
		train(&w, &c, 0, 3, true);
		cr_expect_eq(world_sums(&w).staged, 3 * (FILES + 1));
		cr_expect_eq(w.stats.error_cache + w.stats.error_hash, 0);
		if (mount == 0) {
			cr_expect_eq(w.stats.pfs.bytes, world_dataset(&w));
			clair_stage_stop(w.stage);
			clair_stage_free(w.stage);
			clair_disk_close(disk);
			for (uint32_t id = 0; id < clair_catalog_count(w.catalog); id++)
				world_lose(&w, id);
			cr_assert_eq(clair_disk_open(&config, w.catalog, &disk, &error), 0,
				     "%s", error);
		}
	}
	cr_expect_leq(w.stats.pfs.bytes, world_dataset(&w) + c.ram);
	world_end(&w);
	clair_disk_close(disk);
	char command[128];
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	cr_expect_eq(system(command), 0);
}

/* The stream is replaced while it is staged. */
Test(stage, stream_replaced)
{
	struct world_config c = { .files = FILES, .ram = 0, .staging = 4 << 20,
				  .keep = CLAIR_KEEP_KERNEL, .words = { "seed", "7" } };
	struct world_config right = { .words = WORDS };
	struct world w;

	world_begin(&w, &c);
	cr_assert_eq(clair_stage_start(w.stage), 0);
	cr_assert_eq(world_set_stream(&w, right.words), 0);
	train(&w, &right, 0, 1, true);
	struct clair_epoch_stats sums = world_sums(&w);
	cr_expect_eq(sums.staged, FILES);
	cr_expect_leq(w.resident_most, (4 << 20) * 1.1);
	world_end(&w);
}

/* A sample has a byte for the number of its stream: more streams are refused, and the others stay. */
Test(stage, more_streams_than_there_can_be)
{
	enum { FOLDERS = 260, MOST = 255 };
	struct clair_words words = { 0 };
	struct world_config c = { .files = 0, .staging = 1 << 20 };
	struct clair_stream **streams = NULL;
	struct world w, sub;
	char path[128], *error = NULL;
	size_t count, refused = 0;

	world_begin(&w, &c);
	for (int i = 0; i < FOLDERS; i++) {
		snprintf(path, sizeof path, "%s/d%03d", w.folder, i);
		cr_assert_eq(mkdir(path, 0700), 0);
	}
	c.folder = w.folder;
	world_begin(&sub, &c);
	clair_words_set(&words, "sampler", "sequential");
	for (int i = 0; i < FOLDERS; i++) {
		struct clair_stream *stream;
		snprintf(path, sizeof path, "d%03d", i);
		cr_assert_eq(clair_stream_new(sub.catalog, clair_catalog_find(sub.catalog, path),
					      &words, &stream, &error),
			     0, "%s", error);
		refused += clair_stage_set_stream(sub.stage, stream) == -ENOMEM;
	}
	cr_expect_eq(refused, FOLDERS - MOST);
	cr_assert_eq(clair_stage_streams(sub.stage, &streams, &count), 0);
	cr_expect_eq(count, MOST);
	free(streams);
	clair_words_finish(&words);
	world_end(&sub);
	world_end(&w);
}
