/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_USUAL_SEEDS_H
#define CLAIR_USUAL_SEEDS_H

#include <stddef.h>
#include <stdint.h>

/* Seeds that recipes are seen to have, the most usual first: searches and the learner try them
 * before all others. */
extern const uint64_t clair_usual_seeds[];
extern const size_t clair_usual_seed_count;

#endif
