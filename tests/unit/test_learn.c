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
#include "learn.h"
#include "loader_trace.h"
#include "opens.h"
#include "stream.h"

#define FILES 600
/* Of which the job's own list has so many, in an order of its own. */
#define LISTED 500
/* Of a list over which everything is tried. */
#define FEW 150
/* Above every process id of a Linux system: nobody is asked who they are. */
#define NOBODY 5000000

static char top[64], memory[96];
static struct clair_catalog *catalog;
static uint32_t list[LISTED * 2];

static uint32_t draw(uint32_t *state, uint32_t below)
{
	*state = *state * 1664525u + 1013904223u;
	return (uint32_t)(((uint64_t)*state * below) >> 32);
}

static void shuffle(uint32_t *ids, uint32_t count, uint32_t seed)
{
	for (uint32_t i = count; i > 1; i--) {
		uint32_t k = draw(&seed, i), was = ids[k];
		ids[k] = ids[i - 1];
		ids[i - 1] = was;
	}
}

static uint32_t find(const char *format, unsigned i)
{
	char name[64];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	snprintf(name, sizeof name, format, i);
#pragma GCC diagnostic pop
	uint32_t id = clair_catalog_find(catalog, name);
	cr_assert_neq(id, CLAIR_NO_ID, "%s", name);
	return id;
}

static void make_file(int folder, const char *name)
{
	autoclose int file = openat(folder, name, O_WRONLY | O_CREAT, 0644);

	cr_assert(file >= 0);
}

static void make_tree(unsigned masks)
{
	char name[128];
	uint32_t all[FILES];

	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	snprintf(name, sizeof name, "%s/source", top);
	snprintf(memory, sizeof memory, "%s/order.json", top);
	cr_assert_eq(mkdir(name, 0755), 0);
	autoclose int fd = open(name, O_RDONLY | O_DIRECTORY);
	cr_assert(mkdirat(fd, "images", 0755) == 0 && mkdirat(fd, "masks", 0755) == 0);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "images/%05u.jpg", i);
		make_file(fd, name);
		snprintf(name, sizeof name, "masks/%05u.png", i);
		if (i < masks)
			make_file(fd, name);
	}
	cr_assert_eq(clair_catalog_walk(fd, 1, NULL, NULL, &catalog), 0);
	for (unsigned i = 0; i < FILES; i++)
		all[i] = find("images/%05u.jpg", i);
	shuffle(all, FILES, 99);
	memcpy(list, all, LISTED * sizeof *list);
}

static void begin(void)
{
	make_tree(0);
}

static void end(void)
{
	char command[128];

	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(learn, .init = begin, .fini = end, .timeout = 60);

/* --- opens ---------------------------------------------------------------------------------- */

static bool add(struct clair_opens *o, pid_t pid, pid_t parent, uint64_t started, uint64_t now,
		uint32_t id)
{
	struct clair_process who = { .pid = pid, .parent = parent, .started = started };

	return clair_opens_add(o, who, now, id);
}

Test(learn, a_file_that_is_opened_three_times_counts_once)
{
	struct clair_opens o;

	cr_assert_eq(clair_opens_init(&o, catalog), 0);
	for (unsigned i = 0; i < 100; i++)
		for (unsigned k = 0; k < 3; k++)
			cr_assert_eq(add(&o, 10 + (int)(i % 2), 0, 5, 6, list[i]), k == 0);
	/* Another reader's open of the same file is another sample. */
	cr_assert(add(&o, 10, 0, 5, 6, list[99]));
	cr_expect_eq(o.total, 101);
	cr_expect_eq(o.repeats, 200);
	/* Nobody knows who: within a few opens. */
	cr_assert(add(&o, 0, 0, 0, 0, list[200]));
	cr_assert(add(&o, 0, 0, 0, 0, list[201]));
	cr_assert_not(add(&o, 0, 0, 0, 0, list[200]));
	cr_assert_not(add(&o, 0, 0, 0, 0, clair_catalog_count(catalog)));
	clair_opens_finish(&o);
}

/* A pass ends when the files come again. */
Test(learn, passes_of_one_process)
{
	struct clair_opens o;

	cr_assert_eq(clair_opens_init(&o, catalog), 0);
	for (unsigned pass = 0; pass < 3; pass++) {
		shuffle(list, LISTED, pass);
		for (unsigned i = 0; i < LISTED; i++)
			add(&o, 7, 1, 1, 10 + pass, list[i]);
	}
	cr_expect_eq(o.kept, 3);
	cr_expect_eq(clair_opens_newest(&o)->number, 2);
	for (unsigned pass = 0; pass < 3; pass++) {
		cr_expect_eq(o.passes[pass].count, LISTED);
		cr_expect_eq(o.passes[pass].readers[0].count, LISTED);
	}
	clair_opens_finish(&o);
}

/* Training by workers 20 and 21 of process 5, validation by 30 and 31, one more file by 5
 * itself. STAY: the same workers each epoch. */
static void train_and_validate(bool stay)
{
	struct clair_opens o;

	cr_assert_eq(clair_opens_init(&o, catalog), 0);
	for (unsigned epoch = 0; epoch < 3; epoch++) {
		int more = stay ? 0 : 100 * (int)epoch;
		uint64_t t = 1000 * (epoch + 1), begun = stay ? 1000 : t;
		for (unsigned i = 0; i < 400; i++)
			add(&o, 20 + more + (int)(i % 2), 5, begun, t + 2, list[i]);
		for (unsigned i = 400; i < 500; i++)
			add(&o, 30 + more + (int)(i % 2), 5, begun + 100, t + 102, list[i]);
		add(&o, 5, 1, 1, t + 200, list[500]);
	}
	cr_assert_eq(clair_opens_newest(&o)->number, 8);
	cr_assert_eq(o.pass_count, 8);
	for (unsigned i = 0; i < 8; i++)
		cr_expect_eq(o.ends[i].count, i % 3 == 0 ? 400 : i % 3 == 1 ? 100 : 1);
	clair_opens_finish(&o);
}

Test(learn, passes_of_workers)
{
	train_and_validate(false);
	train_and_validate(true);
}

Test(learn, draws_are_no_passes)
{
	struct clair_opens o;
	uint32_t state = 5;

	cr_assert_eq(clair_opens_init(&o, catalog), 0);
	for (unsigned i = 0; i < 3000; i++)
		add(&o, 7, 1, 1, 2, list[draw(&state, LISTED)]);
	cr_expect_eq(o.kept, 1);
	cr_expect(clair_opens_newest(&o)->drawn);
	clair_opens_finish(&o);
}

Test(learn, packed_opens_come_back)
{
	struct clair_opens o;
	uint32_t state = 1, ids[1000], back[1000];

	cr_assert_eq(clair_opens_init(&o, catalog), 0);
	for (unsigned i = 0; i < 1000; i++)
		ids[i] = draw(&state, i % 10 ? 3000 : UINT32_MAX / 2);
	cr_assert_eq(clair_opens_pack(&o, ids, 1000), 0);
	cr_assert_eq(clair_opens_pack(&o, ids, 0), 0);
	cr_assert_eq(clair_opens_pack(&o, ids + 1, 500), 0);
	cr_assert_eq(o.pass_count, 2);
	const unsigned char *at = o.packed, *last = o.packed + o.packed_size;
	cr_assert(clair_opens_unpack(&at, last, back, 1000));
	cr_expect_eq(memcmp(ids, back, sizeof ids), 0);
	cr_assert(clair_opens_unpack(&at, last, back, 500));
	cr_expect_eq(memcmp(ids + 1, back, 500 * sizeof *ids), 0);
	cr_expect_eq(at, last);
	cr_expect_not(clair_opens_unpack(&at, last, back, 1));
	clair_opens_finish(&o);
}

/* --- answers -------------------------------------------------------------------------------- */

struct answer {
	_Atomic unsigned count;
	struct clair_words words;
	uint32_t folder;
	size_t opens;
};

static bool found(void *arg, uint32_t folder, const struct clair_words *words,
		  const uint32_t *ids, size_t count)
{
	struct answer *a = arg;

	(void)ids;
	clair_words_finish(&a->words);
	cr_assert_eq(clair_words_copy(&a->words, words), 0);
	a->folder = folder;
	a->opens = count;
	atomic_fetch_add(&a->count, 1);
	return true;
}

static struct clair_learn *start(struct answer *a)
{
	struct clair_learn_config config = { .catalog = catalog, .memory = memory,
					     .found = found, .arg = a };
	struct clair_learn *l;

	*a = (struct answer){ 0 };
	cr_assert_eq(clair_learn_new(&config, &l), 0);
	clair_learn_finish(l); /* what is remembered has been read */
	return l;
}

static void stop(struct clair_learn *l, struct answer *a)
{
	clair_learn_free(l);
	clair_words_finish(&a->words);
}

static const char *word(const struct answer *a, const char *key)
{
	const char *value = clair_words_get(&a->words, key);

	return value ? value : "";
}

/* Epoch EPOCH of SAMPLER over the list, GROUP files a sample: OUT has room for all. */
static uint32_t order_of(const char *sampler, const char *seed, uint64_t epoch,
			 unsigned group, uint32_t *out)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream;
	struct clair_epoch *e;
	char *error = NULL;

	clair_words_set(&words, "sampler", sampler);
	clair_words_set(&words, "seed", seed);
	cr_assert_eq(clair_stream_new_numbers(LISTED, &words, &stream, &error), 0, "%s", error);
	cr_assert_eq(clair_stream_epoch(stream, epoch, 0, &e), 0);
	for (uint32_t i = 0; i < e->count; i++)
		for (unsigned g = 0; g < group; g++)
			out[i * group + g] = list[e->ids[i] * group + g];
	uint32_t count = e->count * group;
	clair_epoch_put(e);
	clair_stream_free(stream);
	clair_words_finish(&words);
	return count;
}

/* MOST opens of one epoch, as WORKERS open it that had been started anew for it. */
static void read_epoch(struct clair_learn *l, const uint32_t *ids, uint32_t count,
		       unsigned workers, unsigned batch, unsigned epoch, uint32_t most)
{
	static uint32_t trace[LISTED * 2];
	static uint8_t by[LISTED * 2];

	loader_trace_by(ids, count, workers, batch, 2, epoch + 1, trace, by);
	for (uint32_t i = 0; i < count && i < most; i++)
		clair_learn_open(l, NOBODY + (pid_t)by[i], trace[i]);
}

/* Whether the answer's epoch is that order. */
static void check_epoch(const struct answer *a, uint64_t epoch, const uint32_t *ids,
			uint32_t count)
{
	struct clair_stream *stream;
	struct clair_epoch *e;
	char *error = NULL;

	cr_assert_eq(clair_stream_new(catalog, a->folder, &a->words, &stream, &error), 0, "%s",
		     error);
	cr_assert_eq(clair_stream_epoch(stream, epoch, 0, &e), 0);
	cr_assert_eq(e->count, count);
	cr_assert_eq(memcmp(e->ids, ids, count * sizeof *ids), 0);
	clair_epoch_put(e);
	clair_stream_free(stream);
}

/* An own list: known from the first opens of the second epoch on. */
static void learn_list(const char *sampler, const char *seed, unsigned group, unsigned workers,
		       unsigned batch)
{
	static uint32_t ids[LISTED * 2];
	struct answer a;
	struct clair_learn *l = start(&a);

	uint32_t count = order_of(sampler, seed, 0, group, ids);
	read_epoch(l, ids, count, workers, batch * group, 0, count);
	clair_learn_finish(l);
	cr_assert_eq(a.count, 0, "an answer after one epoch");
	order_of(sampler, seed, 1, group, ids);
	read_epoch(l, ids, count, workers, batch * group, 1, 16);
	clair_learn_finish(l);
	cr_assert_eq(a.count, 1, "%s seed %s", sampler, seed);
	cr_expect_str_eq(word(&a, group > 1 ? "of" : "sampler"), sampler);
	cr_expect_str_eq(word(&a, "seed"), seed);
	cr_expect_eq(strncmp(word(&a, "index"), "list:", 5), 0);
	cr_expect_str_eq(word(&a, "how"), "found");
	cr_expect_eq(a.opens, count + 16);
	check_epoch(&a, 1, ids, count);
	order_of(sampler, seed, 5, group, ids);
	check_epoch(&a, 5, ids, count);
	stop(l, &a);
}

Test(learn, list_without_workers)
{
	learn_list("torch-distributed", "0", 1, 0, 16);
	learn_list("python-shuffle", "42", 1, 0, 16);
}

Test(learn, list_with_workers)
{
	learn_list("torch-distributed", "0", 1, 4, 16);
	learn_list("torch-random", "1234", 1, 3, 10);
}

/* 1000 samples in batches of 25 to two workers: any divisor explains the numbers as well. */
Test(learn, batches_that_come_out_even)
{
	learn_list("torch-distributed", "42", 1, 2, 25);
}

Test(learn, list_of_pictures_and_masks)
{
	uint32_t pictures[LISTED];

	end();
	make_tree(FILES);
	memcpy(pictures, list, sizeof pictures);
	for (unsigned i = 0; i < LISTED; i++) {
		const char *name = clair_catalog_name(catalog, pictures[i]);
		list[2 * i] = pictures[i];
		list[2 * i + 1] = find("masks/%05u.png", (unsigned)atoi(name));
	}
	learn_list("torch-distributed", "0", 2, 2, 16);
}

/* What was learnt is known at the next run's first opens. */
Test(learn, learnt_list_is_remembered)
{
	static uint32_t ids[LISTED];
	struct answer a;

	learn_list("torch-distributed", "0", 1, 4, 16);
	struct clair_learn *l = start(&a);
	uint32_t count = order_of("torch-distributed", "0", 2, 1, ids);
	read_epoch(l, ids, count, 4, 16, 0, 48);
	clair_learn_finish(l);
	cr_assert_eq(a.count, 1);
	cr_expect_str_eq(word(&a, "how"), "remembered");
	check_epoch(&a, 2, ids, count);
	stop(l, &a);
}

/* Orders that nobody knows: no answer, whatever the number of epochs. */
Test(learn, no_false_answers)
{
	static uint32_t ids[LISTED];
	struct answer a;

	for (unsigned trace = 0; trace < 4; trace++) {
		struct clair_learn *l = start(&a);
		memcpy(ids, list, sizeof ids);
		for (unsigned epoch = 0; epoch < 3; epoch++) {
			shuffle(ids, FEW, 1000 * trace + epoch);
			read_epoch(l, ids, FEW, trace % 3, 16, epoch, FEW);
			clair_learn_finish(l);
		}
		struct clair_learn_state state;
		clair_learn_state(l, &state);
		cr_expect_eq(state.passes, 3);
		cr_expect_not_null(state.why);
		stop(l, &a);
		cr_assert_eq(a.count, 0);
	}
}

/* --- an earlier run --------------------------------------------------------------------------- */

/* Batches drawn from all files each, by a generator that nobody knows. */
static void draw_batches(uint32_t *ids, uint32_t seed)
{
	for (unsigned b = 0; b < LISTED / 20; b++) {
		uint32_t all[LISTED];
		memcpy(all, list, sizeof all);
		shuffle(all, LISTED, seed * 1000 + b);
		memcpy(ids + b * 20ul, all, 20 * sizeof *ids);
	}
}

static void first_run(const uint32_t *ids)
{
	struct answer a;
	struct clair_learn *l = start(&a);

	read_epoch(l, ids, LISTED, 3, 20, 0, LISTED);
	clair_learn_finish(l);
	cr_assert_eq(a.count, 0);
	clair_learn_save(l, false);
	stop(l, &a);
}

Test(learn, second_run_with_the_same_seeds)
{
	static uint32_t ids[LISTED];
	struct answer a;
	struct clair_stream *stream;
	struct clair_epoch *e;
	char *error = NULL;

	draw_batches(ids, 1);
	first_run(ids);
	struct clair_learn *l = start(&a);
	/* Other speeds of the workers. */
	read_epoch(l, ids, LISTED, 3, 20, 9, 48);
	clair_learn_finish(l);
	cr_assert_eq(a.count, 1);
	cr_expect_str_eq(word(&a, "how"), "remembered");
	cr_assert_eq(clair_stream_new(catalog, a.folder, &a.words, &stream, &error), 0, "%s",
		     error);
	cr_assert_eq(clair_stream_epoch(stream, 0, 0, &e), 0);
	cr_expect_eq(e->count, LISTED);
	uint64_t sum = 0, expected = 0;
	for (unsigned i = 0; i < e->count; i++) {
		sum += e->ids[i];
		expected += ids[i];
	}
	cr_expect_eq(sum, expected);
	clair_epoch_put(e);
	clair_stream_free(stream);
	stop(l, &a);
}

Test(learn, second_run_with_other_seeds)
{
	static uint32_t ids[LISTED];
	struct answer a;

	draw_batches(ids, 1);
	first_run(ids);
	draw_batches(ids, 2);
	struct clair_learn *l = start(&a);
	read_epoch(l, ids, LISTED, 3, 20, 0, LISTED);
	clair_learn_finish(l);
	cr_assert_eq(a.count, 0);
	/* It is this one that the next run is compared with. */
	clair_learn_save(l, false);
	stop(l, &a);
	l = start(&a);
	read_epoch(l, ids, LISTED, 3, 20, 3, 64);
	clair_learn_finish(l);
	cr_expect_eq(a.count, 1);
	stop(l, &a);
}

/* A run that is resumed in the middle. */
Test(learn, second_run_from_the_middle)
{
	static uint32_t ids[LISTED];
	struct answer a;

	draw_batches(ids, 1);
	first_run(ids);
	struct clair_learn *l = start(&a);
	read_epoch(l, ids + 200, LISTED - 200, 3, 20, 0, 96);
	clair_learn_finish(l);
	cr_expect_eq(a.count, 1);
	stop(l, &a);
}

Test(learn, known_orders_leave_no_opens)
{
	static uint32_t ids[LISTED];
	char file[128];
	struct answer a;
	struct clair_words words = { 0 };
	struct clair_learn *l = start(&a);

	uint32_t count = order_of("torch-distributed", "77", 0, 1, ids);
	read_epoch(l, ids, count, 2, 16, 0, 200);
	clair_words_set(&words, "sampler", "torch-distributed");
	clair_words_set(&words, "seed", "77");
	clair_words_set(&words, "index", "sorted");
	clair_learn_settle(l, 0, &words);
	clair_learn_save(l, true);
	snprintf(file, sizeof file, "%s/order.opens", top);
	cr_expect_neq(access(file, F_OK), 0);
	/* It did not hold: now they are all there is. */
	clair_learn_again(l);
	clair_learn_save(l, false);
	cr_expect_eq(access(file, F_OK), 0);
	stop(l, &a);
	clair_words_finish(&words);
}

/* Whatever became of the files, a mount starts and gives no wrong answer. */
Test(learn, damaged_memory_is_left_aside)
{
	static uint32_t ids[LISTED];
	static const char *const names[] = { "order.json", "order.opens" };
	struct answer a;

	draw_batches(ids, 1);
	for (unsigned k = 0; k < 6; k++) {
		char file[128];
		first_run(ids);
		snprintf(file, sizeof file, "%s/%s", top, names[k % 2]);
		autoclose int fd = open(file, O_WRONLY | O_CREAT, 0600);
		cr_assert(fd >= 0);
		if (k < 2)
			cr_assert_eq(ftruncate(fd, 100), 0);
		else if (k < 4)
			cr_assert_eq(pwrite(fd, "\xff\xff\xff", 3, 60), 3);
		else
			cr_assert_eq(ftruncate(fd, 0), 0);
		struct clair_learn *l = start(&a);
		read_epoch(l, ids, LISTED, 3, 20, 0, 100);
		clair_learn_finish(l);
		/* Of two files the other one is still good. */
		cr_expect_eq(a.count, k % 2 == 0);
		stop(l, &a);
		for (unsigned i = 0; i < 2; i++) {
			snprintf(file, sizeof file, "%s/%s", top, names[i]);
			unlink(file);
		}
	}
}
