/* SPDX-License-Identifier: BSD-3-Clause */
/* loader_model ROOT LIST [--workers W] [--batch B] [--prefetch P] [--compute-us US]
 * Opens the files of LIST (an empty line between epochs) as PyTorch's DataLoader does: W
 * worker processes, batch i goes to worker i mod W, P batches a worker are on their way, the
 * main process takes the batches in order and computes for US a sample. One JSON line an epoch;
 * stall_s is the time that the main process waited for batches, but for the first of an epoch. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "read_sample.h"

#define WORKERS_MAX 32
#define BLOCK 131072

struct batch {
	size_t begin, end;
};

static int root, workers, prefetch = 2;
static size_t batch_size = 32;
static long compute_us;
static struct read_list list;
static int links[WORKERS_MAX];
static pid_t pids[WORKERS_MAX];

static void read_batch(struct batch b, char *buffer, struct read_totals *totals)
{
	for (size_t i = b.begin; i < b.end; i++)
		read_sample(root, list.paths[i], buffer, BLOCK, 0, totals);
}

static void worker_main(int fd, char *buffer)
{
	struct batch b;

	while (read(fd, &b, sizeof b) == sizeof b) {
		struct read_totals totals = { 0 };

		read_batch(b, buffer, &totals);
		if (write(fd, &totals, sizeof totals) != sizeof totals)
			break;
	}
	_exit(0);
}

static int start_workers(char *buffer)
{
	for (int i = 0; i < workers; i++) {
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
			return -1;
		pids[i] = fork();
		if (pids[i] < 0)
			return -1;
		if (!pids[i]) {
			for (int k = 0; k < i; k++)
				close(links[k]);
			close(pair[0]);
			worker_main(pair[1], buffer);
		}
		close(pair[1]);
		links[i] = pair[0];
	}
	return 0;
}

static void stop_workers(void)
{
	for (int i = 0; i < workers; i++)
		close(links[i]);
	for (int i = 0; i < workers; i++)
		waitpid(pids[i], NULL, 0);
}

static struct batch batch_at(size_t begin, size_t end, size_t i)
{
	struct batch b = { begin + i * batch_size, begin + (i + 1) * batch_size };

	if (b.end > end)
		b.end = end;
	return b;
}

static void compute(size_t samples)
{
	int64_t ns = (int64_t)samples * compute_us * 1000;
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	if (ns)
		nanosleep(&t, NULL);
}

/* As a DataLoader that is made anew: workers start and end with the epoch. */
static uint64_t one_epoch(size_t epoch, size_t begin, size_t end, char *buffer)
{
	struct read_totals all = { 0 };
	size_t batches = (end - begin + batch_size - 1) / batch_size, sent = 0;
	int64_t start = read_now_ns(), waited = 0;

	if (start_workers(buffer) < 0)
		return 1;
	for (size_t i = 0; i < batches; i++) {
		struct read_totals part = { 0 };
		int64_t t = read_now_ns();

		for (; workers && sent < batches && sent < i + (size_t)(prefetch * workers); sent++) {
			struct batch b = batch_at(begin, end, sent);

			if (write(links[sent % (size_t)workers], &b, sizeof b) != sizeof b)
				return 1;
		}
		if (!workers)
			read_batch(batch_at(begin, end, i), buffer, &part);
		else if (read(links[i % (size_t)workers], &part, sizeof part) != sizeof part)
			return 1;
		if (i)
			waited += read_now_ns() - t;
		read_totals_add(&all, &part);
		struct batch b = batch_at(begin, end, i);
		compute(b.end - b.begin);
	}
	stop_workers();
	all.stall_ns = waited;
	read_totals_print(&all, epoch, read_now_ns() - start);
	return all.errors;
}

int main(int argc, char **argv)
{
	uint64_t errors = 0;

	for (int i = 3; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--workers"))
			workers = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--batch"))
			batch_size = strtoul(argv[i + 1], NULL, 10);
		else if (!strcmp(argv[i], "--prefetch"))
			prefetch = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "--compute-us"))
			compute_us = atol(argv[i + 1]);
		else
			argc = 0;
	}
	if (argc < 3 || workers < 0 || workers > WORKERS_MAX || !batch_size || prefetch < 1) {
		fprintf(stderr, "usage: loader_model ROOT LIST [OPTION]...\n");
		return 2;
	}
	root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char *buffer = malloc(BLOCK);
	if (root < 0 || !buffer || read_list_load(&list, argv[2]) < 0 || !list.epochs) {
		fprintf(stderr, "loader_model: nothing to read in %s, %s\n", argv[1], argv[2]);
		return 2;
	}
	for (size_t e = 0; e < list.epochs; e++)
		errors += one_epoch(e, e ? list.epoch_ends[e - 1] : 0, list.epoch_ends[e], buffer);
	free(buffer);
	return errors ? 1 : 0;
}
