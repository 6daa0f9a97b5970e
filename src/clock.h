/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CLOCK_H
#define CLAIR_CLOCK_H

#include <pthread.h>
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

/* A condition variable whose deadlines are clair_deadline's. */
static inline void clair_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* The absolute CLOCK_MONOTONIC time that is NS nanoseconds from now. */
static inline struct timespec clair_deadline(int64_t ns)
{
	int64_t t = clair_now_ns() + ns;

	return (struct timespec){ .tv_sec = t / CLAIR_NS_PER_S,
				  .tv_nsec = t % CLAIR_NS_PER_S };
}

#endif
