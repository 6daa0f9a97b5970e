/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernels, one an instruction set. */
#include "seed_search_internal.h"

#include <stdlib.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define KERNEL plain
#ifdef __SSE2__
#define UNPACKED
#define LANES 2
#define CHAINS 12
#else
#define LANES 4
#define CHAINS 4
#endif
#include "seed_search_filter.h"

#ifdef __x86_64__
#pragma GCC push_options
#pragma GCC target("avx2")
#define KERNEL avx2
#define LANES 8
#define GATHER(at, table) _mm256_i32gather_epi32((const int *)(const void *)(table), (__m256i)(at), 1)
#define CHAINS 12
#include "seed_search_filter.h"
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,prefer-vector-width=512")
#define KERNEL avx512
#define LANES 16
#define GATHER(at, table) _mm512_i32gather_epi32((__m512i)(at), table, 1)
#define CHAINS 12
#include "seed_search_filter.h"
#pragma GCC pop_options
#endif

const struct kernel *clair_seed_kernel(const char **name)
{
	const char *limit = getenv("CLAIRFS_SIMD");

	if (!limit)
		limit = "avx512";
#ifdef __x86_64__
	if (!strcmp(limit, "avx512") && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512bw")) {
		*name = "avx512";
		return &avx512;
	}
	if (strcmp(limit, "scalar") && __builtin_cpu_supports("avx2")) {
		*name = "avx2";
		return &avx2;
	}
#endif
	*name = "scalar";
	return &plain;
}

const char *clair_seed_search_path(void)
{
	const char *name;

	clair_seed_kernel(&name);
	return name;
}
