/* SPDX-License-Identifier: BSD-3-Clause */
/* seed_bench [SEEDS [THREADS [GUESSES [avx512 | avx2 | scalar]]]]: CPU time that all of torch's seeds take, by
 * instruction set, with GUESSES dataset orders, each drawn from directly and after two u32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "seed_search.h"

#define N 8121
#define OPENED 400
#define SOON 128 /* of them, where the first entries must be */
#define MOST 16

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	static const char *const paths[] = { "avx512", "avx2", "scalar" };
	uint64_t end = argc > 1 ? strtoull(argv[1], NULL, 0) : 1 << 26;
	unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 2;
	unsigned guesses = argc > 3 ? (unsigned)atoi(argv[3]) : 3;
	static uint64_t opened[MOST][N / 64 + 1], soon[MOST][N / 64 + 1];
	struct clair_seed_target targets[2 * MOST];
	uint32_t x = 1;

	guesses = guesses < 1 ? 1 : guesses > MOST ? MOST : guesses;
	for (unsigned g = 0; g < guesses; g++) {
		for (uint32_t i = 0; i < OPENED; i++) {
			x = x * 1664525u + 1013904223u;
			uint32_t at = (uint32_t)((uint64_t)x * N >> 32);
			opened[g][at / 64] |= 1ull << at % 64;
			if (i < SOON)
				soon[g][at / 64] |= 1ull << at % 64;
		}
		for (unsigned k = 0; k < 2; k++)
			targets[2 * g + k] = (struct clair_seed_target){
				.n = N, .world = 1, .skip = 2 * k, .prefix = 17,
				.opened = opened[g], .first = soon[g]
			};
	}
	for (int i = 0; i < 3; i++) {
		if (argc > 4 && strcmp(argv[4], paths[i]))
			continue;
		struct clair_seed_query q = { .targets = targets, .count = 2 * guesses,
					      .end = end, .threads = threads };
		struct clair_seed_hit hit;
		size_t count;

		setenv("CLAIRFS_SIMD", paths[i], 1);
		int64_t begin = clair_now_ns();
		double cpu = cpu_seconds();
		if (clair_seed_search(&q, &hit, 1, &count) < 0)
			return 1;
		cpu = (cpu_seconds() - cpu) * 4294967296. / (double)end;
		double wall = (double)(clair_now_ns() - begin) / 1e9 * 4294967296. /
			      (double)end;
		printf("%-7s %.1f M seeds/s a core; all 2^32: %.1f s of CPU time, %.1f s on "
		       "each of %u cores (%.1f s here and now)\n",
		       clair_seed_search_path(), 4294.967296 / cpu, cpu, cpu / threads,
		       threads, wall);
	}
	return 0;
}
