/* SPDX-License-Identifier: BSD-3-Clause */
/* seed_bench [SEEDS [THREADS]]: how long all of torch's seeds take, by instruction set. */
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "seed_search.h"

#define N 8121

int main(int argc, char **argv)
{
	static const char *const paths[] = { "avx512", "avx2", "scalar" };
	uint64_t end = argc > 1 ? strtoull(argv[1], NULL, 0) : 1 << 26;
	unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 2;
	static uint64_t opened[N / 64 + 1];

	for (uint32_t i = 0; i < 256; i++) {
		uint32_t at = i * 2654435761u % N;
		opened[at / 64] |= 1ull << at % 64;
	}
	for (int i = 0; i < 3; i++) {
		struct clair_seed_query q = { .n = N, .world = 1, .opened = opened,
					      .prefix = 32, .end = end, .threads = threads };
		size_t count;
		uint32_t seed;

		setenv("CLAIRFS_SIMD", paths[i], 1);
		int64_t begin = clair_now_ns();
		clair_seed_search(&q, &seed, 1, &count);
		double s = (double)(clair_now_ns() - begin) / 1e9;
		printf("%-7s %.1f M seeds/s, all 2^32 in %.0f s, 2^20 in %.1f ms\n",
		       clair_seed_search_path(), (double)end / s / 1e6,
		       s * 4294967296. / (double)end, s * 1048576e3 / (double)end);
	}
	return 0;
}
