/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "discover.h"
#include "loader_trace.h"
#include "stream.h"

#define FILES 2000
#define FOLDERS 5

static char top[64];
static struct clair_catalog *catalog;

static void make_tree(unsigned files)
{
	char name[64];

	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	autoclose int fd = open(top, O_RDONLY | O_DIRECTORY);
	for (unsigned i = 0; i < FOLDERS; i++) {
		snprintf(name, sizeof name, "class%u", i);
		cr_assert_eq(mkdirat(fd, name, 0755), 0);
	}
	for (unsigned i = 0; i < files; i++) {
		snprintf(name, sizeof name, "class%u/%05u.png", i % FOLDERS, i);
		autoclose int file = openat(fd, name, O_WRONLY | O_CREAT, 0644);
		cr_assert(file >= 0);
	}
	cr_assert_eq(clair_catalog_walk(fd, 1, NULL, NULL, &catalog), 0);
}

static void begin(void)
{
	make_tree(FILES);
}

static void end(void)
{
	char command[128];

	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(discover, .init = begin, .fini = end, .timeout = 150);

struct answer {
	_Atomic unsigned count;
	char seed[32], sampler[32], how[32];
};

static bool found(void *arg, uint32_t folder, const struct clair_words *words,
		  const uint32_t *ids, size_t count)
{
	struct answer *a = arg;
	const char *seed = clair_words_get(words, "seed");

	(void)ids;
	cr_assert_lt(folder, clair_catalog_count(catalog));
	cr_assert_gt(count, 0);
	snprintf(a->seed, sizeof a->seed, "%s", seed ? seed : "");
	snprintf(a->sampler, sizeof a->sampler, "%s", clair_words_get(words, "sampler"));
	snprintf(a->how, sizeof a->how, "%s", clair_words_get(words, "how"));
	atomic_fetch_add(&a->count, 1);
	return true;
}

static struct clair_discover *start(const struct clair_words *given, struct answer *answer)
{
	struct clair_discover_config config = { .catalog = catalog, .given = given,
						.threads = 2, .found = found, .arg = answer };
	struct clair_discover *d;

	cr_assert_eq(clair_discover_new(&config, &d), 0);
	return d;
}

/* Epoch 0 or more of SAMPLER as WORKERS open it; IDS has room for FILES. */
static uint32_t epoch_of(const char *sampler, const char *seed, uint64_t number,
			 const struct clair_words *given, uint32_t rank, unsigned workers,
			 uint32_t *ids)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream;
	struct clair_epoch *epoch;
	char *error = NULL;

	cr_assert_eq(clair_words_copy(&words, given), 0);
	clair_words_set(&words, "sampler", sampler);
	if (seed)
		clair_words_set(&words, "seed", seed);
	cr_assert_eq(clair_stream_new(catalog, 0, &words, &stream, &error), 0, "%s", error);
	cr_assert_eq(clair_stream_epoch(stream, number, rank, &epoch), 0);
	uint32_t count = epoch->count;
	loader_trace(epoch->ids, count, workers, 16, 2, 7, ids);
	clair_epoch_put(epoch);
	clair_stream_free(stream);
	clair_words_finish(&words);
	return count;
}

/* A whole epoch is opened, and what SAMPLER and SEED are must come out. */
static void find(const char *sampler, const char *seed, uint64_t number, unsigned workers)
{
	static uint32_t ids[FILES];
	struct clair_words none = { 0 };
	struct answer answer = { 0 };
	uint32_t count = epoch_of(sampler, seed, number, &none, 0, workers, ids);
	struct clair_discover *d = start(&none, &answer);

	for (uint32_t i = 0; i < count; i++)
		clair_discover_open(d, 0, ids[i]);
	cr_assert(clair_discover_finish(d), "%s seed %s is not found", sampler, seed);
	clair_discover_free(d);
	cr_assert_eq(answer.count, 1);
	cr_expect_str_eq(answer.sampler, sampler);
	cr_expect_str_eq(answer.seed, seed ? seed : "");
	cr_expect_str_eq(answer.how, "found");
}

Test(discover, distributed_without_workers)
{
	find("torch-distributed", "0", 0, 0);
	find("torch-distributed", "999983", 0, 0);
}

Test(discover, distributed_with_workers)
{
	find("torch-distributed", "42", 0, 4);
	find("torch-distributed", "77777", 0, 4);
}

Test(discover, one_rank_of_two)
{
	static uint32_t ids[FILES];
	struct clair_words given = { 0 };
	struct answer answer = { 0 };

	clair_words_set(&given, "world", "2");
	clair_words_set(&given, "ranks", "1");
	uint32_t count = epoch_of("torch-distributed", "5", 0, &given, 1, 2, ids);
	cr_assert_eq(count, FILES / 2);
	struct clair_discover *d = start(&given, &answer);
	for (uint32_t i = 0; i < count; i++)
		clair_discover_open(d, 0, ids[i]);
	cr_expect(clair_discover_finish(d));
	clair_discover_free(d);
	cr_expect_str_eq(answer.sampler, "torch-distributed");
	cr_expect_str_eq(answer.seed, "5");
	clair_words_finish(&given);
}

Test(discover, in_order)
{
	find("sequential", NULL, 0, 0);
	find("sequential", NULL, 0, 4);
}

Test(discover, other_families)
{
	find("numpy-randomstate", "42", 0, 2);
	find("python-shuffle", "42", 0, 0);
}

/* After a change of the seed it is found again. */
Test(discover, again)
{
	static uint32_t ids[FILES];
	struct clair_words none = { 0 };
	struct answer answer = { 0 };
	struct clair_discover *d = start(&none, &answer);
	static const char *const seeds[] = { "3", "1234" };

	for (unsigned k = 0; k < 2; k++) {
		if (k)
			clair_discover_again(d);
		uint32_t count = epoch_of("torch-distributed", seeds[k], 0, &none, 0, 4, ids);
		for (uint32_t i = 0; i < count; i++)
			clair_discover_open(d, 0, ids[i]);
		cr_assert(clair_discover_finish(d));
		cr_assert_eq(answer.count, k + 1);
		cr_expect_str_eq(answer.seed, seeds[k]);
	}
	clair_discover_free(d);
}

/* Until it has thought about what it knows; fewer opens than all seeds are searched for. */
static void wait_idle(struct clair_discover *d)
{
	int64_t end_ns = clair_now_ns() + 100 * CLAIR_NS_PER_S;
	double seconds;
	uint64_t opens;

	for (unsigned quiet = 0; quiet < 10 && clair_now_ns() < end_ns;) {
		usleep(5000);
		quiet = strcmp(clair_discover_state(d, &seconds, &opens),
			       "waiting for more opens") ?
				0 :
				quiet + 1;
	}
}

/* Files drawn by no sampler that it knows: no answer. */
Test(discover, noise_has_no_answer)
{
	struct clair_words given = { 0 };
	uint32_t x = 12345, all = clair_catalog_count(catalog);

	clair_words_set(&given, "index", "sorted");
	for (unsigned trace = 0; trace < 4; trace++) {
		struct answer answer = { 0 };
		struct clair_discover *d = start(&given, &answer);
		for (unsigned n = 0; n < 200;) {
			x = x * 1664525u + 1013904223u;
			uint32_t id = (uint32_t)(((uint64_t)x * all) >> 32);
			if (clair_catalog_entry(catalog, id)->kind != CLAIR_FILE)
				continue;
			clair_discover_open(d, 0, id);
			n++;
		}
		wait_idle(d);
		clair_discover_free(d);
		cr_assert_eq(answer.count, 0, "%s %s", answer.sampler, answer.seed);
	}
	clair_words_finish(&given);
}

/* The same few files again and again. */
Test(discover, repeated_opens)
{
	struct clair_words none = { 0 };
	struct answer answer = { 0 };
	struct clair_discover *d = start(&none, &answer);
	uint32_t id = clair_catalog_find(catalog, "class0/00000.png");

	for (unsigned i = 0; i < 250; i++)
		clair_discover_open(d, 0, id + i % 3);
	wait_idle(d);
	clair_discover_free(d);
	cr_expect_eq(answer.count, 0);
}

Test(discover, freed_in_the_middle)
{
	static uint32_t ids[FILES];
	struct clair_words none = { 0 };

	uint32_t count = epoch_of("torch-distributed", "1048000", 0, &none, 0, 4, ids);
	for (unsigned opens = 0; opens < 300; opens += 60) {
		struct answer answer = { 0 };
		struct clair_discover *d = start(&none, &answer);
		for (uint32_t i = 0; i < opens && i < count; i++)
			clair_discover_open(d, getpid(), ids[i]);
		clair_discover_free(d);
	}
	clair_discover_free(NULL);
}

/* Sets that are too small to say anything. */
Test(discover_small, no_answer_and_no_crash, .timeout = 150)
{
	static const unsigned sizes[] = { 0, 1, 2, 10 };

	for (unsigned k = 0; k < 4; k++) {
		struct clair_words none = { 0 };
		struct answer answer = { 0 };
		make_tree(sizes[k]);
		struct clair_discover *d = start(&none, &answer);
		uint32_t all = clair_catalog_count(catalog);
		for (unsigned round = 0; round < 20; round++)
			for (uint32_t id = 0; id < all; id++)
				if (clair_catalog_entry(catalog, id)->kind == CLAIR_FILE)
					clair_discover_open(d, 0, id);
		cr_expect_not(clair_discover_finish(d));
		clair_discover_free(d);
		cr_expect_eq(answer.count, 0);
		end();
	}
}
