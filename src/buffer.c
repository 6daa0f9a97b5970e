/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"

#define SMALLEST 16384u /* bytes of class 0; each class is twice the one before */
#define CLASSES 9       /* the last: 4 MiB; larger ones are not kept */

struct clair_pool {
	pthread_mutex_t lock;
	struct clair_buffer *free[CLASSES]; /* lock */
	size_t kept, keep;                  /* lock: bytes in free */
	int fd; /* of the shared memory, or -1; set before the first buffer */
	unsigned char *base;
	uint64_t shared, taken;             /* bytes of it; lock: given out so far */
	struct clair_buffer *cold[CLASSES]; /* lock: of the shared memory, without pages */
};

struct clair_pool *clair_pool_new(size_t keep)
{
	struct clair_pool *pool = calloc(1, sizeof *pool);

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pool->keep = keep;
	pool->fd = -1;
	return pool;
}

int clair_pool_share(struct clair_pool *pool, uint64_t bytes)
{
	bytes &= ~4095ull;
	autoclose int fd = memfd_create("clairfs-buffers", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
			  0);
	if (base == MAP_FAILED)
		return -errno;
	pool->base = base;
	pool->shared = bytes;
	pool->fd = take_fd(fd);
	return pool->fd;
}

static void free_list(struct clair_buffer **list)
{
	while (*list) {
		struct clair_buffer *b = *list;
		*list = b->next;
		if (b->offset == CLAIR_NOT_SHARED)
			munmap(b->data, b->room);
		free(b);
	}
}

void clair_pool_free(struct clair_pool *pool)
{
	if (!pool)
		return;
	for (int i = 0; i < CLASSES; i++) {
		free_list(&pool->free[i]);
		free_list(&pool->cold[i]);
	}
	if (pool->fd >= 0) {
		munmap(pool->base, pool->shared);
		close(pool->fd);
	}
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

/* The class of SIZE; CLASSES when it is larger than all. */
static int class_of(size_t size)
{
	int i = 0;

	while (i < CLASSES && (size_t)SMALLEST << i < size)
		i++;
	return i;
}

/* B's memory from the part of the shared memory that was never used. */
static bool carve(struct clair_pool *pool, struct clair_buffer *b)
{
	autolock(&pool->lock);
	if (pool->fd < 0 || b->room > pool->shared - pool->taken)
		return false;
	b->offset = pool->taken;
	b->data = pool->base + pool->taken;
	pool->taken += b->room;
	return true;
}

struct clair_buffer *clair_buffer_get(struct clair_pool *pool, size_t size)
{
	int class = class_of(size);
	struct clair_buffer *b = NULL;

	if (class < CLASSES) {
		autolock(&pool->lock);
		b = pool->free[class];
		if (b) {
			pool->free[class] = b->next;
			pool->kept -= b->room;
			return b;
		}
		b = pool->cold[class];
		if (b) {
			pool->cold[class] = b->next;
			return b;
		}
	}
	b = malloc(sizeof *b);
	if (!b)
		return NULL;
	b->next = NULL;
	b->room = class < CLASSES ? (size_t)SMALLEST << class : (size + 4095) & ~(size_t)4095;
	if (class < CLASSES && carve(pool, b))
		return b;
	b->offset = CLAIR_NOT_SHARED;
	b->data = mmap(NULL, b->room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0);
	if (b->data == MAP_FAILED) {
		free(b);
		return NULL;
	}
	return b;
}

void clair_buffer_put(struct clair_pool *pool, struct clair_buffer *b)
{
	if (!b)
		return;
	int class = class_of(b->room);
	if (class < CLASSES) {
		autolock(&pool->lock);
		if (pool->kept + b->room <= pool->keep) {
			pool->kept += b->room;
			b->next = pool->free[class];
			pool->free[class] = b;
			return;
		}
	}
	if (b->offset == CLAIR_NOT_SHARED) {
		munmap(b->data, b->room);
		free(b);
		return;
	}
	/* Only its pages are given back: who maps the memory sees the same offsets. */
	fallocate(pool->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->offset,
		  (off_t)b->room);
	autolock(&pool->lock);
	b->next = pool->cold[class];
	pool->cold[class] = b;
}
