/* SPDX-License-Identifier: BSD-3-Clause */
/* reader ROOT LIST [--threads T] [--compute-us US] [--passes P] [--block BYTES] [--limit N]
 *        [--direct]: reads the files of LIST (paths; an empty line between epochs; `-`: stdin)
 * with T threads, one JSON line a pass. With --passes the first epoch is read P times. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "read_sample.h"

static int root, flags;
static size_t block = 131072;
static long compute_us;
static struct read_list list;
static _Atomic size_t next_file;
static size_t end_file;

static void *thread_main(void *out)
{
	struct read_totals *totals = out;
	char *buffer = aligned_alloc(4096, (block + 4095) / 4096 * 4096);
	int64_t ready = read_now_ns();

	for (size_t i; (i = atomic_fetch_add(&next_file, 1)) < end_file;) {
		read_sample(root, list.paths[i], buffer, block, flags, totals);
		if (!compute_us)
			continue;
		/* Computing starts when the sample is there; late wake-ups do not add up. */
		int64_t now = read_now_ns();
		ready = (ready > now - 2000000 ? ready : now) + compute_us * 1000;
		struct timespec t = { ready / 1000000000, ready % 1000000000 };
		if (ready > now)
			clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
	}
	free(buffer);
	return NULL;
}

static uint64_t one_pass(size_t epoch, size_t begin, size_t end, int threads)
{
	pthread_t t[64];
	struct read_totals part[64], all;

	memset(part, 0, sizeof part);
	memset(&all, 0, sizeof all);
	atomic_store(&next_file, begin);
	end_file = end;
	int64_t start = read_now_ns();
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, thread_main, &part[i]);
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
		read_totals_add(&all, &part[i]);
	}
	read_totals_print(&all, epoch, read_now_ns() - start);
	return all.errors;
}

int main(int argc, char **argv)
{
	int threads = 1;
	size_t passes = 0, limit = SIZE_MAX;
	uint64_t errors = 0;

	for (int i = 3; i < argc; i++) {
		const char *value = i + 1 < argc ? argv[i + 1] : "0";

		if (!strcmp(argv[i], "--direct")) {
			flags = O_DIRECT;
			continue;
		}
		if (!strcmp(argv[i], "--threads"))
			threads = atoi(value);
		else if (!strcmp(argv[i], "--compute-us"))
			compute_us = atol(value);
		else if (!strcmp(argv[i], "--passes"))
			passes = strtoul(value, NULL, 10);
		else if (!strcmp(argv[i], "--block"))
			block = strtoul(value, NULL, 10);
		else if (!strcmp(argv[i], "--limit"))
			limit = strtoul(value, NULL, 10);
		else
			argc = 0;
		i++;
	}
	if (argc < 3 || threads < 1 || threads > 64 || !block) {
		fprintf(stderr, "usage: reader ROOT LIST [OPTION]...\n");
		return 2;
	}
	root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = root < 0 ? -1 : read_list_load(&list, argv[2]);
	if (r < 0 || !list.epochs) {
		fprintf(stderr, "reader: nothing to read in %s, %s\n", argv[1], argv[2]);
		return 2;
	}
	size_t epochs = passes ? passes : list.epochs;
	for (size_t e = 0; e < epochs; e++) {
		size_t k = passes ? 0 : e;
		size_t begin = k ? list.epoch_ends[k - 1] : 0, end = list.epoch_ends[k];

		errors += one_pass(e, begin, end - begin > limit ? begin + limit : end, threads);
	}
	return errors ? 1 : 0;
}
