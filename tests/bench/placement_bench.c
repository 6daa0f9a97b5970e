/* SPDX-License-Identifier: BSD-3-Clause */
/* placement_bench [SAMPLES [RANKS [NODES [EPOCHS [SAMPLER [ROOM]]]]]]: what a placement of
 * samples that are only numbers takes: seconds, bytes a sample while it is made and after.
 * ROOM: of the job, in datasets (1.2). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "placement.h"

struct world {
	uint32_t samples, ranks, nodes, epochs;
	const char *sampler;
	double room;
};

static uint64_t peak_bytes(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (uint64_t)usage.ru_maxrss * 1024;
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct clair_stream *make_stream(const struct world *w)
{
	struct clair_words words = { 0 };
	struct clair_stream *stream;
	char text[32], *error = NULL;

	snprintf(text, sizeof text, "%u", w->ranks);
	clair_words_set(&words, "world", text);
	clair_words_set(&words, "seed", "42");
	clair_words_set(&words, "sampler", w->sampler);
	if (clair_stream_new_numbers(w->samples, &words, &stream, &error) < 0) {
		fprintf(stderr, "%s\n", error ? error : "no stream");
		exit(1);
	}
	clair_words_finish(&words);
	return stream;
}

/* What the sampler itself takes for all ranks of two epochs: the floor. */
static void warm_up(struct clair_stream *stream, const struct world *w)
{
	struct clair_indices ids = { 0 };
	int64_t begin = clair_now_ns();

	for (uint32_t e = 0; e < 2; e++)
		for (uint32_t rank = 0; rank < w->ranks; rank++)
			if (clair_stream_ids(stream, e, rank, &ids) < 0)
				exit(1);
	printf("%-8s %.2f s an epoch of all ranks\n", "order",
	       (double)(clair_now_ns() - begin) / 2e9);
	clair_indices_finish(&ids);
}

static void spread(const struct clair_placement *p, const struct world *w,
		   const struct clair_placement_node *nodes)
{
	double low = 1e9, high = 0;
	uint32_t without = 0;

	for (uint32_t i = 0; i < w->nodes; i++) {
		double f = (double)clair_placement_filled(p, i) / (double)nodes[i].ram;
		low = f < low ? f : low;
		high = f > high ? f : high;
	}
	for (uint32_t id = 0; id < w->samples; id++)
		without += clair_placement_home(p, id) == CLAIR_NO_NODE;
	printf("         filled %.4f to %.4f, %u without a home\n", low, high, without);
}

static int run(const struct clair_policy *policy, const struct world *w)
{
	struct clair_stream *stream = make_stream(w);
	struct clair_placement *p;
	uint64_t *sizes = malloc(w->samples * sizeof *sizes), total = 0;
	struct clair_placement_node *nodes = calloc(w->nodes, sizeof *nodes);
	uint16_t *ranks = malloc(w->ranks * sizeof *ranks);

	for (uint32_t i = 0; i < w->samples; i++)
		total += sizes[i] = 1000 + i * 2654435761u % 200000;
	for (uint32_t i = 0; i < w->nodes; i++)
		nodes[i].ram = (uint64_t)((double)total / w->nodes * w->room);
	for (uint32_t i = 0; i < w->ranks; i++)
		ranks[i] = (uint16_t)((uint64_t)i * w->nodes / w->ranks);
	const uint16_t *node_of_rank = ranks;
	const struct clair_placement_input input = {
		.nodes = nodes, .node_count = w->nodes, .streams = &stream, .stream_count = 1,
		.node_of_rank = &node_of_rank, .epochs = w->epochs, .sizes = sizes,
		.count = w->samples,
	};
	warm_up(stream, w);
	uint64_t before = peak_bytes();
	double cpu = cpu_seconds();
	int64_t begin = clair_now_ns();
	int r = policy->place(&input, &p);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", policy->name, strerror(-r));
		return 1;
	}
	printf("%-8s %.1f s (%.1f of the CPU), %.1f bytes a sample while it is made, %.2f "
	       "after\n",
	       policy->name, (double)(clair_now_ns() - begin) / 1e9, cpu_seconds() - cpu,
	       (double)(peak_bytes() - before) / w->samples,
	       (double)clair_placement_memory(p) / w->samples);
	spread(p, w, nodes);
	clair_placement_free(p);
	clair_stream_free(stream);
	free(sizes);
	free(nodes);
	free(ranks);
	return 0;
}

static uint32_t number(int argc, char **argv, int i, uint32_t fallback)
{
	return argc > i ? (uint32_t)strtoul(argv[i], NULL, 0) : fallback;
}

int main(int argc, char **argv)
{
	const struct clair_policy *policy;
	const struct world w = {
		.samples = number(argc, argv, 1, 14197122),
		.ranks = number(argc, argv, 2, 1024),
		.nodes = number(argc, argv, 3, 256),
		.epochs = number(argc, argv, 4, 8),
		.sampler = argc > 5 ? argv[5] : "torch-distributed",
		.room = argc > 6 ? strtod(argv[6], NULL) : 1.2,
	};
	int failed = 0;

	/* Each in a process of its own: peaks do not hide each other. */
	for (size_t i = 0; (policy = clair_policy_at(i)); i++) {
		fflush(stdout);
		pid_t child = fork();
		if (child == 0)
			exit(run(policy, &w));
		int status;
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			failed = 1;
	}
	return failed;
}
