/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "stream.h"

static char top[64];
static struct clair_catalog *catalog;

static void put(int at, const char *name, const char *text)
{
	autoclose int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

/* Two classes of five pictures in train, three files in val. */
static void set_up(void)
{
	char name[32];

	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	autoclose int fd = open(top, O_RDONLY | O_DIRECTORY);
	mkdirat(fd, "train", 0755);
	mkdirat(fd, "train/a", 0755);
	mkdirat(fd, "train/b", 0755);
	mkdirat(fd, "val", 0755);
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof name, "train/a/%d.png", i);
		put(fd, name, "x");
		snprintf(name, sizeof name, "train/b/%d.png", i);
		put(fd, name, "yy");
	}
	put(fd, "val/1", "");
	put(fd, "val/2", "");
	put(fd, "val/3", "");
	cr_assert_eq(clair_catalog_walk(fd, 2, NULL, NULL, &catalog), 0);
}

static void tear_down(void)
{
	char command[128];

	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(stream, .init = set_up, .fini = tear_down);

/* TEXT: word=value words, separated by blanks. */
static void words_of(const char *text, struct clair_words *words)
{
	autofree char *copy = strdup(text);
	char *rest = copy, *word;

	while ((word = strsep(&rest, " "))) {
		char *value = strchr(word, '=');
		if (!value)
			continue;
		*value++ = '\0';
		cr_assert_eq(clair_words_set(words, word, value), 0);
	}
}

static struct clair_stream *stream_of(const char *folder, const char *text)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream = NULL;
	autofree char *error = NULL;

	words_of(text, &words);
	uint32_t id = clair_catalog_find(catalog, folder);
	cr_assert_eq(clair_stream_new(catalog, id, &words, &stream, &error), 0, "%s: %s",
		     text, error);
	clair_words_finish(&words);
	return stream;
}

static void check_epoch(struct clair_stream *s, uint64_t epoch, uint32_t rank,
			const char *expected)
{
	struct clair_epoch *e = NULL;
	char all[4096] = "", path[256];

	cr_assert_eq(clair_stream_epoch(s, epoch, rank, &e), 0);
	cr_assert(e->epoch == epoch && e->rank == rank);
	for (uint32_t i = 0; i < e->count; i++) {
		clair_catalog_path(catalog, e->ids[i], path, sizeof path);
		strcat(all, i ? " " : "");
		strcat(all, path);
	}
	cr_assert_str_eq(all, expected);
	clair_epoch_put(e);
}

Test(stream, in_order)
{
	struct clair_stream *s = stream_of("val", "sampler=sequential");

	cr_assert(clair_stream_known(s));
	cr_assert_str_eq(clair_stream_index(s), "sorted");
	check_epoch(s, 0, 0, "val/1 val/2 val/3");
	check_epoch(s, 7, 0, "val/1 val/2 val/3");
	clair_stream_free(s);
	s = stream_of("val", "sampler=sequential world=2 ranks=0-1 epoch=3 epochs=2 batch=4");
	size_t ranks;
	clair_stream_ranks(s, &ranks);
	cr_assert_eq(ranks, 2);
	cr_assert_eq(clair_stream_world(s), 2);
	cr_assert_eq(clair_stream_first_epoch(s), 3);
	cr_assert_eq(clair_stream_end_epoch(s), 5);
	cr_assert_eq(clair_stream_batch(s), 4);
	clair_stream_free(s);
}

/* torch.randperm(10) with seed 42: 2 6 1 8 4 5 0 9 3 7. */
Test(stream, seed_alone_is_a_distributed_sampler)
{
	struct clair_stream *s = stream_of("train", "seed=42 world=2 ranks=1");

	cr_assert_str_eq(clair_stream_sampler(s), "torch-distributed");
	cr_assert_str_eq(clair_stream_index(s), "imagefolder");
	check_epoch(s, 0, 1, "train/b/1.png train/b/3.png train/b/0.png train/b/4.png "
			     "train/b/2.png");
	check_epoch(s, 0, 0, "train/a/2.png train/a/1.png train/a/4.png train/a/0.png "
			     "train/a/3.png");
	clair_stream_free(s);
}

Test(stream, unknown)
{
	static const char *const unknown[] = { "", "seed=auto", "sampler=auto",
					       "sampler=torch-random seed=auto" };
	struct clair_epoch *e;

	for (int i = 0; i < 4; i++) {
		struct clair_stream *s = stream_of("train", unknown[i]);
		uint32_t count;

		cr_assert_not(clair_stream_known(s), "%s", unknown[i]);
		cr_assert_str_eq(clair_stream_sampler(s), "auto");
		cr_assert_eq(clair_stream_epoch(s, 0, 0, &e), -ENOENT);
		clair_stream_samples(s, &count);
		cr_assert_eq(count, 10);
		cr_assert_eq(clair_stream_end_epoch(s), UINT64_MAX);
		clair_stream_free(s);
	}
}

Test(stream, split)
{
	/* randperm(10, seed 42) cut at 7: the second part is 9 3 7. */
	struct clair_stream *s = stream_of("train", "sampler=sequential "
						    "split=torch:42:0.7/0.3:1");
	struct clair_indices list = { 0 };

	check_epoch(s, 0, 0, "train/b/4.png train/a/3.png train/b/2.png");
	cr_assert_eq(clair_stream_indices(s, 0, 0, &list), 0);
	cr_assert(list.count == 3 && list.at[0] == 9 && list.at[1] == 3 && list.at[2] == 7);
	clair_indices_finish(&list);
	clair_stream_free(s);
}

Test(stream, numbers)
{
	struct clair_words words = { 0 };
	struct clair_stream *s = NULL;
	struct clair_epoch *e;
	char *error = NULL;

	words_of("seed=42", &words);
	cr_assert_eq(clair_stream_new_numbers(10, &words, &s, &error), 0);
	cr_assert_eq(clair_stream_epoch(s, 0, 0, &e), 0);
	static const uint32_t expected[] = { 2, 6, 1, 8, 4, 5, 0, 9, 3, 7 };
	cr_assert_eq(e->count, 10);
	cr_assert_arr_eq(e->ids, expected, sizeof expected);
	clair_epoch_put(e);
	clair_stream_free(s);
	clair_words_finish(&words);
}

Test(stream, list_of_paths)
{
	char file[96], text[128];

	snprintf(file, sizeof file, "%s/../clairfs-list-%d", top, getpid());
	put(AT_FDCWD, file, "a/3.png\ntrain/b/0.png\n\n9\n0\n");
	snprintf(text, sizeof text, "sampler=list:%s", file);
	struct clair_stream *s = stream_of("train", text);
	unlink(file);
	check_epoch(s, 0, 0, "train/a/3.png train/b/0.png");
	check_epoch(s, 1, 0, "train/b/4.png train/a/0.png");
	clair_stream_free(s);
}

/* What was handed out stays whole while the stream forgets it, and the same epoch is
 * handed out again while it is remembered. */
Test(stream, epochs_are_shared)
{
	struct clair_stream *s = stream_of("train", "seed=1");
	struct clair_epoch *first, *again, *other;

	cr_assert_eq(clair_stream_epoch(s, 0, 0, &first), 0);
	cr_assert_eq(clair_stream_epoch(s, 0, 0, &again), 0);
	cr_assert_eq(first, again);
	clair_epoch_put(again);
	for (uint64_t e = 1; e < 20; e++) {
		cr_assert_eq(clair_stream_epoch(s, e, 0, &other), 0);
		cr_assert_eq(other->count, 10);
		clair_epoch_put(other);
	}
	cr_assert_eq(first->references, 1);
	cr_assert_eq(clair_stream_epoch(s, 0, 0, &again), 0);
	cr_assert_neq(first, again);
	cr_assert_arr_eq(first->ids, again->ids, sizeof *first->ids * first->count);
	clair_epoch_put(again);
	clair_stream_free(s);
	cr_assert_eq(first->count, 10);
	clair_epoch_put(first);
}

Test(stream, mistakes)
{
	static const char *const wrong[] = {
		"seed=1 world=2 ranks=2", "sampler=nope",	   "index=nope",
		"seed=1 bogus=1",	  "split=nope",		   "seed=x",
		"sampler=list:/no/where", "seed=1 split=torch:1:0.5/0.9:0",
	};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct clair_words words = { 0 };
		struct clair_stream *s = NULL;
		autofree char *error = NULL;

		words_of(wrong[i], &words);
		cr_assert_eq(clair_stream_new(catalog, 0, &words, &s, &error), -EINVAL, "%s",
			     wrong[i]);
		cr_assert_null(s);
		cr_assert(error && !strchr(error, '\n'), "%s", wrong[i]);
		clair_words_finish(&words);
	}
}

/* Whatever was asked for before, in whatever order; ids are the samples' at the indices. */
Test(stream, rank_by_rank)
{
	static const char *const texts[] = {
		"sampler=torch-distributed seed=1", "sampler=tf-shuffle seed=3",
		"sampler=tf-shuffle seed=3 shard=before", "sampler=keras-directory seed=5",
		"sampler=nopfs seed=5 batch=6", "sampler=dali-file shuffle_after_epoch=1",
		"sampler=python-shuffle seed=9", "sampler=accelerate seed=2 batch=2",
	};
	/* epoch, rank */
	static const uint32_t asked[][2] = { { 0, 0 }, { 0, 1 }, { 0, 2 }, { 2, 1 }, { 2, 0 },
					     { 1, 2 }, { 0, 1 }, { 3, 0 }, { 3, 0 } };
	struct clair_indices got = { 0 };

	for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
		char text[256];

		snprintf(text, sizeof text, "%s world=3 index=sorted", texts[k]);
		struct clair_stream *s = stream_of("train", text);
		for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
			struct clair_stream *fresh = stream_of("train", text);
			struct clair_epoch *e = NULL;

			cr_assert_eq(clair_stream_epoch(fresh, asked[i][0], asked[i][1], &e), 0);
			cr_assert_eq(clair_stream_ids(s, asked[i][0], asked[i][1], &got), 0);
			cr_assert_eq(got.count, e->count, "%s", text);
			cr_assert(e->count && !memcmp(got.at, e->ids,
						      got.count * sizeof *got.at),
				  "%s: epoch %u, rank %u", text, asked[i][0], asked[i][1]);
			clair_epoch_put(e);
			clair_stream_free(fresh);
		}
		clair_stream_free(s);
	}
	struct clair_stream *unknown = stream_of("train", "seed=auto");
	cr_assert_eq(clair_stream_ids(unknown, 0, 0, &got), -ENOENT);
	clair_stream_free(unknown);
	clair_indices_finish(&got);
}
