/* SPDX-License-Identifier: BSD-3-Clause */
/* discover_noise [TRACES [SEED]]: how many of so many traces that follow no order are taken for
 * one, with the usual orders and all seeds below 2^20; sizes of 500 to 20,000 samples. Each
 * trace draws its batches as Python's random.sample does, without repeats in an epoch or with,
 * by one thread or by four. Prints a line per false answer, and their number. All 2^32 seeds
 * are not searched: the same rule asks for as many more digits as they have. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "discover_internal.h"

#define OPENS 400

static uint64_t state;

/* SplitMix64: none of the generators that are searched. */
static uint64_t random_u64(void)
{
	uint64_t z = state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static bool nobody(void *arg, uint32_t folder, const struct clair_words *words,
		   const uint32_t *ids, size_t count)
{
	(void)arg;
	(void)folder;
	(void)words;
	(void)ids;
	(void)count;
	return true;
}

static void make_trace(uint32_t n, unsigned kind, uint32_t *ids, pid_t *pids)
{
	uint32_t *order = malloc(sizeof *order * n), left = 0;

	for (uint32_t i = 0; i < OPENS; i++) {
		/* Every batch of 16 anew, or the whole epoch without repeats. */
		if (i == 0 || (kind & 1 && i % 16 == 0)) {
			for (uint32_t k = 0; k < n; k++)
				order[k] = k;
			left = n;
		}
		uint32_t k = (uint32_t)(random_u64() % left);
		ids[i] = order[k];
		order[k] = order[--left];
		pids[i] = kind & 2 ? (pid_t)(i / 16 % 4 + 1) : 0;
	}
	free(order);
}

static bool is_answered(struct clair_discover *d, const uint32_t *ids, const pid_t *pids,
			size_t count)
{
	struct clair_words words = { 0 };
	struct opened opened;
	uint32_t folder;

	if (clair_opened_init(&opened, ids, pids, count) < 0)
		exit(1);
	bool yes = clair_discover_try(d, &opened, CHEAP, &folder, &words);
	for (size_t i = 0; yes && i < words.count; i++)
		printf("%s=%s ", words.items[i].key, words.items[i].value);
	if (yes)
		printf("after %zu opens\n", count);
	clair_opened_finish(&opened);
	clair_words_finish(&words);
	return yes;
}

int main(int argc, char **argv)
{
	unsigned traces = argc > 1 ? (unsigned)atoi(argv[1]) : 1000, wrong = 0;
	static const size_t steps[] = { 24, 96, 400 };
	struct timespec t;

	state = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	for (unsigned i = 0; i < traces; i++) {
		uint32_t n = 500 + (uint32_t)(random_u64() % 19501), ids[OPENS];
		pid_t pids[OPENS];
		struct clair_discover_config config = { .samples = n, .threads = 1,
							.found = nobody };
		struct clair_discover *d;

		make_trace(n, i, ids, pids);
		if (clair_discover_new(&config, &d) < 0)
			return 1;
		for (unsigned k = 0; k < sizeof steps / sizeof steps[0]; k++)
			wrong += is_answered(d, ids, pids, steps[k]);
		clair_discover_free(d);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	printf("%u traces, %u false answers, %.1f s of CPU time\n", traces, wrong,
	       (double)t.tv_sec + (double)t.tv_nsec / 1e9);
	return wrong != 0;
}
