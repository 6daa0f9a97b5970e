/* SPDX-License-Identifier: BSD-3-Clause */
/* Discovery over samples that are only numbers: threads, worlds, generators, noise. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "discover_internal.h"
#include "mt19937.h"
#include "seed_search.h"
#include "stream.h"

#define MOST 60000

struct answer {
	unsigned count;
	struct clair_words words;
	size_t opens;
};

static bool found(void *arg, uint32_t folder, const struct clair_words *words,
		  const uint32_t *ids, size_t count)
{
	struct answer *a = arg;

	(void)ids;
	cr_assert_eq(folder, 0);
	clair_words_finish(&a->words);
	cr_assert_eq(clair_words_copy(&a->words, words), 0);
	a->opens = count;
	a->count++;
	return true;
}

static struct clair_discover *start(uint32_t n, struct answer *answer)
{
	struct clair_discover_config config = { .samples = n, .threads = 2, .found = found,
						.arg = answer };
	struct clair_discover *d;

	cr_assert_eq(clair_discover_new(&config, &d), 0);
	return d;
}

static void expect(const struct answer *a, const char *word, const char *value)
{
	const char *got = clair_words_get(&a->words, word);

	cr_expect_str_eq(got ? got : "(none)", value, "%s", word);
}

/* "seed=3;world=2": what that stream reads in EPOCH, into OUT. */
static uint32_t order_of(uint32_t n, const char *text, uint64_t epoch, uint32_t rank,
			 uint32_t *out)
{
	struct clair_words words = { 0 };
	struct clair_indices list = { 0 };
	struct clair_stream *stream;
	autofree char *copy = strdup(text);
	char *error = NULL, *save = NULL;

	for (char *p = strtok_r(copy, ";", &save); p; p = strtok_r(NULL, ";", &save)) {
		char *value = strchr(p, '=');
		*value++ = '\0';
		cr_assert_eq(clair_words_set(&words, p, value), 0);
	}
	cr_assert_eq(clair_stream_new_numbers(n, &words, &stream, &error), 0, "%s", error);
	cr_assert_eq(clair_stream_indices(stream, epoch, rank, &list), 0);
	uint32_t count = (uint32_t)list.count;
	memcpy(out, list.at, count * sizeof *out);
	clair_indices_finish(&list);
	clair_stream_free(stream);
	clair_words_finish(&words);
	return count;
}

/* The first OPENS of ORDER by WORKERS threads in batches, each file TIMES times; the threads
 * take turns by chance, at most two batches ahead. */
static void open_by(struct clair_discover *d, const uint32_t *order, uint32_t count,
		    unsigned workers, unsigned batch, unsigned opens, unsigned times)
{
	unsigned at[16] = { 0 };
	uint32_t x = 9;

	while (opens) {
		unsigned w, least = UINT32_MAX;
		x = x * 1664525u + 1013904223u;
		w = (x >> 16) % workers;
		for (unsigned i = 0; i < workers; i++)
			least = at[i] < least ? at[i] : least;
		uint32_t place = (at[w] / batch * workers + w) * batch + at[w] % batch;
		if (at[w] / batch > least / batch + 1)
			continue;
		cr_assert_lt(place, count);
		for (unsigned i = 0; i < times; i++)
			clair_discover_open(d, -(pid_t)(100 + w), order[place]);
		at[w]++;
		opens--;
	}
}

static uint32_t order[MOST];

/* Found, and from so few opens that only the threads' own sequences can have said it. */
static void find_by_threads(unsigned workers, unsigned batch, unsigned opens, unsigned times)
{
	struct answer answer = { 0 };
	struct clair_discover *d = start(50000, &answer);
	uint32_t count = order_of(50000, "seed=777777", 0, 0, order);

	open_by(d, order, count, workers, batch, opens, times);
	cr_assert(clair_discover_finish(d), "%u workers, batch %u", workers, batch);
	clair_discover_free(d);
	expect(&answer, "sampler", "torch-distributed");
	expect(&answer, "seed", "777777");
	clair_words_finish(&answer.words);
}

Test(discover_numbers, threads_sequences_say_it_early)
{
	find_by_threads(4, 8, 30, 1);
	find_by_threads(4, 2, 60, 1);
	find_by_threads(4, 1, 60, 1);
	find_by_threads(1, 7, 20, 1);
	find_by_threads(8, 16, 60, 3); /* as np.load(mmap_mode) opens */
}

/* Whatever the order is, a sequence that follows it counts, one that does not counts
 * little. */
Test(discover_numbers, digits_of_sequences)
{
	uint32_t ids[40];
	pid_t pids[40];
	struct opened o;
	struct numbering n = { .count = 1000 };

	order_of(1000, "seed=5", 0, 0, order);
	n.ids = malloc(1000 * sizeof *n.ids);
	for (uint32_t i = 0; i < 1000; i++)
		n.ids[i] = i;
	for (uint32_t i = 0; i < 40; i++) { /* two workers, batches of 4 */
		uint32_t w = i % 2, k = i / 2;
		ids[i] = order[(k / 4 * 2 + w) * 4 + k % 4];
		pids[i] = (pid_t)w + 1;
	}
	cr_assert_eq(clair_opened_init(&o, ids, pids, 40), 0);
	cr_assert_eq(o.opener_count, 2);
	cr_assert_eq(clair_numbering_fill(&n, &o, 1000), 0);
	double digits = clair_fit_digits(&n, &o, order, 1000);
	cr_expect_gt(digits, 40 * 2.9 - 6);
	cr_expect_leq(digits, 40 * 3.);
	cr_expect(clair_fit(&n, &o, order, 1000, 10));
	order[4] ^= 1; /* the second worker's begin */
	cr_expect_lt(clair_fit_digits(&n, &o, order, 1000), 20 * 3.);
	order[0] = 999; /* the first one's */
	cr_expect_lt(clair_fit_digits(&n, &o, order, 1000), 1);
	clair_opened_finish(&o);
	clair_numbering_finish(&n);
}

static void find_rank(const char *words, uint32_t rank, const char *seed, const char *world)
{
	struct answer answer = { 0 };
	struct clair_discover *d = start(MOST, &answer);
	uint32_t count = order_of(MOST, words, 0, rank, order);
	char text[16];

	open_by(d, order, count, 2, 4, 200, 1);
	cr_assert(clair_discover_finish(d), "%s", words);
	clair_discover_free(d);
	snprintf(text, sizeof text, "%u", rank);
	expect(&answer, "seed", seed);
	expect(&answer, "world", world);
	expect(&answer, "ranks", text);
	clair_words_finish(&answer.words);
}

/* The world is not known: it is seen from the gaps in the permutation. */
Test(discover_numbers, world_and_rank_by_the_gaps)
{
	find_rank("seed=42;world=4;ranks=2", 2, "42", "4");
	find_rank("seed=0;world=64;ranks=63", 63, "0", "64");
	find_rank("seed=1338;world=3;ranks=0", 0, "1338", "3");
}

/* RandomSampler without a generator: two epochs say what the default generator does. */
Test(discover_numbers, the_default_generator_after_two_epochs)
{
	const char *truth = "sampler=torch-default;seed=1234;skip=100;stride=9";
	struct answer answer = { 0 };
	struct clair_discover *d = start(3000, &answer);
	static uint32_t expected[3000];
	char words[128];

	for (uint64_t e = 0; e < 2; e++) {
		if (e)
			clair_discover_again(d);
		uint32_t count = order_of(3000, truth, e, 0, order);
		open_by(d, order, count, 4, 8, 400, 1);
		cr_assert(clair_discover_finish(d));
		cr_assert_eq(answer.count, e + 1);
		expect(&answer, "sampler", "torch-default");
		expect(&answer, "seed", "1234");
		expect(&answer, "skip", e ? "109" : "100");
	}
	expect(&answer, "stride", "9");
	/* From the third epoch on it is known. */
	snprintf(words, sizeof words, "sampler=torch-default;seed=1234;skip=%s;stride=%s",
		 clair_words_get(&answer.words, "skip"),
		 clair_words_get(&answer.words, "stride"));
	for (uint64_t e = 2; e < 5; e++) {
		order_of(3000, truth, e, 0, expected);
		order_of(3000, words, e - 1, 0, order);
		cr_expect_arr_eq(order, expected, sizeof expected);
	}
	clair_discover_free(d);
	clair_words_finish(&answer.words);
}

/* A trial over the first 200 of ORDER (of N samples), opened by one thread. */
struct case_of {
	struct trial t;
	struct opened opened;
	struct numbering n;
	struct clair_words words;
	pid_t pids[200];
};

static void case_init(struct case_of *c, struct clair_discover *d, uint32_t n)
{
	*c = (struct case_of){ .n = { .count = n, .ids = malloc(n * sizeof *c->n.ids) } };
	for (uint32_t i = 0; i < n; i++)
		c->n.ids[i] = i;
	cr_assert_eq(clair_opened_init(&c->opened, order, c->pids, 200), 0);
	cr_assert_eq(clair_numbering_fill(&c->n, &c->opened, n), 0);
	c->t = (struct trial){ .d = d, .opened = &c->opened, .words = &c->words, .all = &c->n,
			       .count = 1, .world = 1 };
}

static void case_finish(struct case_of *c)
{
	clair_opened_finish(&c->opened);
	clair_numbering_finish(&c->n);
	clair_words_finish(&c->words);
}

/* Seeds that are found by searching all of them, where the default generator has not been
 * walked: two in a row say what generator draws them. */
Test(discover_numbers, two_seeds_of_a_generator)
{
	struct answer answer = { 0 };
	struct clair_discover *d = start(3000, &answer);
	struct clair_mt mt;
	struct case_of c;
	char text[16];

	clair_mt_seed(&mt, 1337);
	clair_mt_skip(&mt, 5003);
	for (unsigned k = 0; k < 2; k++) {
		uint32_t seed = clair_mt_u32(&mt);
		clair_mt_skip(&mt, 5); /* six an epoch */
		snprintf(text, sizeof text, "seed=%u", seed);
		order_of(3000, text, 0, 0, order);
		case_init(&c, d, 3000);
		uint64_t begin = seed - seed % 50000;
		cr_assert(clair_try_seeds(&c.t, 1, 1, begin, begin + 50000));
		cr_expect_str_eq(clair_words_get(&c.words, "sampler"),
				 k ? "torch-default" : "torch-distributed");
		snprintf(text, sizeof text, "%u", seed);
		cr_expect_str_eq(clair_words_get(&c.words, "seed"), k ? "1337" : text);
		cr_expect_str_eq(k ? clair_words_get(&c.words, "skip") : "5006", "5006");
		cr_expect_str_eq(k ? clair_words_get(&c.words, "stride") : "6", "6");
		case_finish(&c);
	}
	clair_discover_free(d);
}

Test(discover_numbers, fastai_by_its_seed)
{
	struct answer answer = { 0 };
	struct clair_discover *d = start(7390, &answer);
	struct case_of c;

	order_of(7390, "sampler=fastai-chain;seed=12347", 0, 0, order);
	case_init(&c, d, 7390);
	cr_assert(clair_try_python(&c.t));
	cr_expect_str_eq(clair_words_get(&c.words, "sampler"), "fastai-chain");
	cr_expect_str_eq(clair_words_get(&c.words, "seed"), "12347");
	case_finish(&c);
	clair_discover_free(d);
}

/* Opens in an order of nobody's, by one thread or several: no answer by what is cheap. With
 * all seeds the chance is the same: the test allows for their number. */
Test(discover_numbers, noise_has_no_answer)
{
	static uint32_t ids[400];
	static pid_t pids[400];
	uint64_t x = 88172645463325252u;

	for (unsigned round = 0; round < 12; round++) {
		enum effort effort = round % 4 ? QUICK : CHEAP;
		uint32_t n = 500 + round * round * 130;
		struct answer answer = { 0 };
		struct clair_discover *d = start(n, &answer);
		struct clair_words words = { 0 };
		struct opened opened;
		uint32_t folder;

		for (uint32_t i = 0; i < n; i++)
			order[i] = i;
		for (uint32_t i = 0; i < 400; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			uint32_t k = i + (uint32_t)((x >> 20) % (n - i));
			ids[i] = order[k];
			order[k] = order[i];
			pids[i] = (pid_t)(round % 2 ? i / 8 % 4 : 0);
		}
		cr_assert_eq(clair_opened_init(&opened, ids, pids, 200 + 200 * (round % 3 / 2)),
			     0);
		cr_expect_not(clair_discover_try(d, &opened, effort, &folder, &words));
		clair_opened_finish(&opened);
		clair_words_finish(&words);
		clair_discover_free(d);
	}
}
