/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "loader_trace.h"
#include "options.h"
#include "tracker.h"

/* A catalog of N empty files in a folder of its own. */
struct world {
	struct clair_catalog *catalog;
	struct clair_stream *stream;
	struct clair_tracker *tracker;
	uint32_t *order, *opens; /* room for an epoch of all lanes */
};

static struct clair_catalog *make_catalog(unsigned n)
{
	char top[] = "/tmp/clairfs-test-XXXXXX", command[64];
	struct clair_catalog *c = NULL;

	cr_assert(mkdtemp(top));
	int fd = open(top, O_RDONLY | O_DIRECTORY);
	for (unsigned i = 0; i < n; i++) {
		char name[32];
		snprintf(name, sizeof name, "f%06u", i);
		close(openat(fd, name, O_WRONLY | O_CREAT, 0644));
	}
	cr_assert_eq(clair_catalog_walk(fd, 4, NULL, NULL, &c), 0);
	close(fd);
	snprintf(command, sizeof command, "rm -rf %s", top);
	cr_assert_eq(system(command), 0);
	return c;
}

static struct clair_stream *make_stream(struct clair_catalog *c, const char *words)
{
	struct clair_options o;
	struct clair_stream *s = NULL;
	char *error = NULL;

	clair_options_init(&o);
	cr_assert_eq(clair_options_add(&o, words, &error), 0, "%s", error);
	cr_assert_eq(clair_stream_new(c, 0, &o.order, &s, &error), 0, "%s", error);
	clair_options_finish(&o);
	return s;
}

static struct world make_world(unsigned n, const char *words)
{
	struct world w = { .catalog = make_catalog(n) };

	w.stream = make_stream(w.catalog, words);
	cr_assert_eq(clair_tracker_new(w.stream, &w.tracker), 0);
	w.order = malloc(sizeof(uint32_t) * (n + 1) * 4);
	w.opens = malloc(sizeof(uint32_t) * (n + 1) * 4);
	return w;
}

static void free_world(struct world *w)
{
	clair_tracker_free(w->tracker);
	clair_stream_free(w->stream);
	clair_catalog_free(w->catalog);
	free(w->order);
	free(w->opens);
}

/* What all lanes of STREAM open in EPOCH, each with its own loader, interleaved. */
static uint32_t trace(struct world *w, struct clair_stream *stream, uint64_t epoch,
		      unsigned workers, unsigned batch)
{
	size_t lanes;
	const uint32_t *ranks = clair_stream_ranks(stream, &lanes);
	uint32_t *parts[8], counts[8], at[8] = { 0 }, total = 0;

	for (size_t l = 0; l < lanes; l++) {
		struct clair_epoch *e;
		cr_assert_eq(clair_stream_epoch(stream, epoch, ranks[l], &e), 0);
		parts[l] = malloc(sizeof(uint32_t) * (e->count + 1));
		counts[l] = e->count;
		total += e->count;
		loader_trace(e->ids, e->count, workers, batch, 2,
			     (uint32_t)(epoch * 8 + l + 1), parts[l]);
		clair_epoch_put(e);
	}
	for (uint32_t n = 0; n < total;)
		for (size_t l = 0; l < lanes; l++)
			if (at[l] < counts[l])
				w->opens[n++] = parts[l][at[l]++];
	for (size_t l = 0; l < lanes; l++)
		free(parts[l]);
	return total;
}

/* Opens the first COUNT of w->opens; returns how many were not predicted. */
static unsigned feed(struct world *w, uint32_t begin, uint32_t count)
{
	unsigned missed = 0;

	for (uint32_t i = begin; i < begin + count; i++) {
		struct clair_open_result r;
		clair_tracker_open(w->tracker, w->opens[i], 0, &r);
		missed += r.use == CLAIR_USE_UNPREDICTED;
	}
	return missed;
}

static struct clair_position position(struct world *w, uint32_t lane)
{
	struct clair_position p;

	clair_tracker_position(w->tracker, lane, &p);
	return p;
}

Test(tracker, workers_are_followed_exactly)
{
	static const unsigned workers[] = { 0, 1, 2, 4, 8 };

	for (int i = 0; i < 5; i++) {
		struct world w = make_world(3001, "seed=42,sampler=torch-distributed");
		for (uint64_t e = 0; e < 4; e++) {
			uint32_t n = trace(&w, w.stream, e, workers[i], 32);
			cr_assert_eq(feed(&w, 0, n), 0, "workers %u epoch %d", workers[i],
				     (int)e);
			cr_assert_eq(position(&w, 0).epoch, e);
			cr_assert_eq(position(&w, 0).low, n);
		}
		cr_assert(clair_tracker_trusted(w.tracker));
		free_world(&w);
	}
}

Test(tracker, position_is_the_low_water_mark)
{
	struct world w = make_world(1000, "seed=1,sampler=torch-distributed");

	trace(&w, w.stream, 0, 0, 1);
	struct clair_open_result r;
	clair_tracker_open(w.tracker, w.opens[2], 0, &r);
	clair_tracker_open(w.tracker, w.opens[1], 0, &r);
	cr_assert_eq(position(&w, 0).low, 0);
	cr_assert_eq(position(&w, 0).high, 3);
	cr_assert(clair_tracker_opened(w.tracker, 0, 2));
	cr_assert_not(clair_tracker_opened(w.tracker, 0, 0));
	clair_tracker_open(w.tracker, w.opens[0], 0, &r);
	cr_assert_eq(position(&w, 0).low, 3);
	free_world(&w);
}

Test(tracker, several_local_ranks)
{
	struct world w = make_world(2003, "seed=7,world=8,ranks=2-5,batch=16,workers=2");

	for (uint64_t e = 0; e < 3; e++) {
		uint32_t n = trace(&w, w.stream, e, 2, 16);
		cr_assert_eq(feed(&w, 0, n), 0, "epoch %d", (int)e);
		for (uint32_t l = 0; l < 4; l++)
			cr_assert_eq(position(&w, l).epoch, e);
	}
	free_world(&w);
}

Test(tracker, opened_twice_counts_once)
{
	struct world w = make_world(500, "seed=7");
	struct clair_open_result r;
	uint32_t n = trace(&w, w.stream, 0, 2, 8);

	for (uint32_t i = 0; i < n; i++) {
		clair_tracker_open(w.tracker, w.opens[i], 0, &r);
		cr_assert_eq(r.use, CLAIR_USE_PREDICTED);
		clair_tracker_open(w.tracker, w.opens[i], 0, &r);
		if (i < n - 1)
			cr_assert_eq(r.use, CLAIR_USE_REPEAT, "%u", i);
	}
	free_world(&w);
}

/* set_epoch forgotten: epoch 0 again and again. */
Test(tracker, same_epoch_again)
{
	struct world w = make_world(3000, "seed=3");

	uint32_t n = trace(&w, w.stream, 0, 4, 32);
	cr_assert_eq(feed(&w, 0, n), 0);
	cr_assert_leq(feed(&w, 0, n), 32);
	cr_assert_eq(position(&w, 0).epoch, 0);
	cr_assert_eq(clair_tracker_next_epoch(w.tracker, 0), 0);
	cr_assert_eq(feed(&w, 0, n), 0); /* by now it is expected */
	cr_assert_geq(position(&w, 0).pass, 2);
	free_world(&w);
}

Test(tracker, resumed_at_an_epoch)
{
	struct world w = make_world(3000, "seed=3");

	uint32_t n = trace(&w, w.stream, 57, 4, 32);
	unsigned missed = feed(&w, 0, n);
	cr_assert_leq(missed, 32, "%u", missed);
	cr_assert_eq(position(&w, 0).epoch, 57);
	n = trace(&w, w.stream, 58, 4, 32);
	cr_assert_eq(feed(&w, 0, n), 0);
	free_world(&w);
}

Test(tracker, epoch_left_in_the_middle)
{
	struct world w = make_world(3000, "seed=3");

	uint32_t n = trace(&w, w.stream, 0, 4, 32);
	cr_assert_eq(feed(&w, 0, n / 2), 0);
	n = trace(&w, w.stream, 1, 4, 32);
	cr_assert_leq(feed(&w, 0, n), 32);
	cr_assert_eq(position(&w, 0).epoch, 1);
	cr_assert_eq(position(&w, 0).low, n);
	free_world(&w);
}

Test(tracker, a_few_batches_first)
{
	struct world w = make_world(3000, "seed=3");

	uint32_t n = trace(&w, w.stream, 0, 2, 32);
	cr_assert_eq(feed(&w, 0, 96), 0);
	cr_assert_leq(feed(&w, 0, n), 96 + 32);
	cr_assert_eq(position(&w, 0).low, n);
	free_world(&w);
}

/* The data's mean and deviation are computed first: all files in order, twice. Then training, which
 * the next search finds: after 256 opens at most. */
Test(tracker, two_passes_before_training)
{
	struct world w = make_world(3000, "seed=3,batch=32");
	struct clair_stream *sorted = make_stream(w.catalog, "sampler=sequential");

	for (int pass = 0; pass < 2; pass++) {
		uint32_t n = trace(&w, sorted, 0, 2, 32);
		feed(&w, 0, n);
	}
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		uint32_t n = trace(&w, w.stream, epoch, 4, 32);
		unsigned missed = feed(&w, 0, n);
		cr_expect_leq(missed, epoch ? 0 : 192, "epoch %d: %u", (int)epoch, missed);
		cr_expect_eq(position(&w, 0).epoch, epoch);
	}
	cr_expect(clair_tracker_trusted(w.tracker));
	clair_stream_free(sorted);
	free_world(&w);
}

/* The same in the shuffled order: epoch 0 is read three times. */
Test(tracker, two_shuffled_passes_before_training)
{
	struct world w = make_world(3000, "seed=3,batch=32");

	for (int pass = 0; pass < 3; pass++) {
		uint32_t n = trace(&w, w.stream, 0, 4, 32);
		unsigned missed = feed(&w, 0, n);
		cr_expect_leq(missed, pass ? 4 * 32u : 0, "pass %d: %u", pass, missed);
	}
	uint32_t n = trace(&w, w.stream, 1, 4, 32);
	cr_expect_leq(feed(&w, 0, n), 4 * 32u);
	cr_expect_eq(position(&w, 0).epoch, 1);
	free_world(&w);
}

/* A run that goes on late, over more samples than one search may look at. */
Test(tracker, a_large_set_resumed)
{
	enum { N = 1100000, EPOCH = 40 };
	struct clair_words words = { 0 };
	struct clair_stream *stream;
	struct clair_tracker *tracker;
	struct clair_open_result r;
	struct clair_position at;
	struct clair_epoch *e;
	unsigned missed = 0;
	char *error = NULL;

	clair_words_set(&words, "sampler", "torch-distributed");
	clair_words_set(&words, "seed", "3");
	cr_assert_eq(clair_stream_new_numbers(N, &words, &stream, &error), 0, "%s", error);
	cr_assert_eq(clair_tracker_new(stream, &tracker), 0);
	cr_assert_eq(clair_stream_epoch(stream, EPOCH, 0, &e), 0);
	for (uint32_t i = 0; i < 1000; i++) {
		clair_tracker_open(tracker, e->ids[i], 0, &r);
		missed += r.use == CLAIR_USE_UNPREDICTED;
	}
	cr_expect_leq(missed, 64, "%u", missed);
	clair_tracker_position(tracker, 0, &at);
	cr_expect_eq(at.epoch, EPOCH, "epoch %d", (int)at.epoch);
	cr_expect_eq(at.high, 1000);
	clair_epoch_put(e);
	clair_tracker_free(tracker);
	clair_stream_free(stream);
	clair_words_finish(&words);
}

Test(tracker, lost_events)
{
	struct world w = make_world(20000, "seed=3");

	uint32_t n = trace(&w, w.stream, 0, 4, 32);
	cr_assert_eq(feed(&w, 0, 1000), 0);
	unsigned missed = feed(&w, 12000, n - 12000);
	cr_assert_leq(missed, 32, "%u", missed);
	cr_assert_eq(position(&w, 0).low, n);
	free_world(&w);
}

Test(tracker, wrong_seed_is_noticed)
{
	struct world w = make_world(5000, "seed=3");
	struct clair_stream *other = make_stream(w.catalog, "seed=999999");
	unsigned opens = 0;

	trace(&w, other, 0, 2, 32);
	while (clair_tracker_trusted(w.tracker)) {
		feed(&w, opens, 1);
		cr_assert_lt(++opens, 100);
	}
	uint32_t n = trace(&w, other, 0, 2, 32);
	unsigned missed = feed(&w, opens, n - opens);
	cr_assert_gt(missed, n / 2, "%u", missed);
	cr_assert_not(clair_tracker_trusted(w.tracker));
	/* When it fits again, it is trusted again. */
	n = trace(&w, w.stream, 0, 2, 32);
	feed(&w, 0, n);
	cr_assert(clair_tracker_trusted(w.tracker));
	clair_stream_free(other);
	free_world(&w);
}

/* `ls -R` and the like: an order of its own is not taken for some far epoch. */
Test(tracker, sorted_reading_is_no_epoch)
{
	struct world w = make_world(5000, "seed=42");
	struct clair_stream *other = make_stream(w.catalog, "sampler=sequential");

	uint32_t n = trace(&w, other, 0, 0, 1);
	feed(&w, 0, n);
	cr_assert_lt(position(&w, 0).epoch, 3);
	cr_assert_not(clair_tracker_trusted(w.tracker));
	clair_stream_free(other);
	free_world(&w);
}

Test(tracker, tiny_sets)
{
	for (unsigned n = 0; n <= 10; n++) {
		struct world w = make_world(n, "seed=3");
		for (uint64_t e = 0; e < 5; e++) {
			uint32_t count = trace(&w, w.stream, e, 0, 1);
			cr_assert_eq(feed(&w, 0, count), 0, "n %u epoch %d", n, (int)e);
		}
		free_world(&w);
	}
}

Test(tracker, told_the_epoch)
{
	struct world w = make_world(1000, "seed=3");

	cr_assert_eq(clair_tracker_set_epoch(w.tracker, 9), 0);
	uint32_t n = trace(&w, w.stream, 9, 2, 32);
	cr_assert_eq(feed(&w, 0, n), 0);
	cr_assert_eq(position(&w, 0).epoch, 9);
	free_world(&w);
}
