/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CLOCK_H
#define CLAIR_CLOCK_H

#include <stdint.h>
#include <time.h>

#define CLAIR_NS_PER_S 1000000000LL
#define CLAIR_NS_PER_MS 1000000LL

/* Monotonic time in nanoseconds. */
static inline int64_t clair_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * CLAIR_NS_PER_S + t.tv_nsec;
}

/* The absolute CLOCK_MONOTONIC time that is NS nanoseconds from now: for condition
 * variables whose attribute says CLOCK_MONOTONIC. */
static inline struct timespec clair_deadline(int64_t ns)
{
	int64_t t = clair_now_ns() + ns;

	return (struct timespec){ .tv_sec = t / CLAIR_NS_PER_S,
				  .tv_nsec = t % CLAIR_NS_PER_S };
}

#endif
