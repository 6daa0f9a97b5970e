/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CXX_SHUFFLE_H
#define CLAIR_CXX_SHUFFLE_H

#include <stddef.h>
#include <stdint.h>

#include "mt19937.h"

/* std::shuffle of libstdc++ with the engines that loaders use. Which numbers come depends
 * on the compiler that built the framework: GCC 11 changed the distribution. */

enum clair_cxx_engine_kind {
	CLAIR_CXX_MT19937,
	CLAIR_CXX_MT19937_64,
	CLAIR_CXX_MINSTD0, /* std::default_random_engine */
};

struct clair_mt64 {
	uint64_t state[312];
	uint32_t next;
};

struct clair_cxx_engine {
	enum clair_cxx_engine_kind kind;
	int gcc; /* 10: up to GCC 10, 11: from GCC 11 on */
	union {
		struct clair_mt mt;
		struct clair_mt64 mt64;
		uint32_t minstd; /* in [1, 2^31 - 2] */
	};
};

/* SEED as the engine's constructor takes it: negative ints sign-extended to 64 bits. */
void clair_cxx_seed(struct clair_cxx_engine *e, enum clair_cxx_engine_kind kind,
		    uint64_t seed, int gcc);
void clair_cxx_shuffle(struct clair_cxx_engine *e, uint32_t *items, size_t n);
/* std::seed_seq{words}.generate(out, out + n), n >= 1. */
void clair_cxx_seed_seq(const uint32_t *words, size_t count, uint32_t *out, size_t n);

#endif
