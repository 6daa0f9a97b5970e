/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CLEANUP_H
#define CLAIR_CLEANUP_H

/* Cleanup attributes: what a scope owns is given back when it ends. */

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void clair_freep(void *p)
{
	free(*(void **)p);
}

static inline void clair_closep(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void clair_fclosep(FILE **f)
{
	if (*f)
		fclose(*f);
}

static inline void clair_closedirp(DIR **d)
{
	if (*d)
		closedir(*d);
}

static inline void clair_unlockp(pthread_mutex_t **m)
{
	if (*m)
		pthread_mutex_unlock(*m);
}

#define autofree __attribute__((cleanup(clair_freep)))
#define autoclose __attribute__((cleanup(clair_closep)))
#define autofclose __attribute__((cleanup(clair_fclosep)))
#define autoclosedir __attribute__((cleanup(clair_closedirp)))

static inline pthread_mutex_t *clair_locked(pthread_mutex_t *m)
{
	pthread_mutex_lock(m);
	return m;
}

/* Holds a mutex until the end of the scope. */
#define CLAIR_GUARD_NAME2(line) guard_##line
#define CLAIR_GUARD_NAME(line) CLAIR_GUARD_NAME2(line)
#define autolock(m)                                                                     \
	__attribute__((cleanup(clair_unlockp), unused)) pthread_mutex_t *               \
		CLAIR_GUARD_NAME(__LINE__) = clair_locked(m)

/* Moves a value out of an owned variable. */
#define take_ptr(p)                                                                     \
	({                                                                              \
		__typeof__(p) taken_ = (p);                                             \
		(p) = NULL;                                                             \
		taken_;                                                                 \
	})
#define take_fd(fd)                                                                     \
	({                                                                              \
		int taken_ = (fd);                                                      \
		(fd) = -1;                                                              \
		taken_;                                                                 \
	})

#endif
