/* SPDX-License-Identifier: BSD-3-Clause */
#include "buffer.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cleanup.h"

#define SMALLEST 16384u /* bytes of class 0; each class is twice the one before */
#define CLASSES 9       /* the last: 4 MiB; larger ones are not kept */

struct clair_pool {
	pthread_mutex_t lock;
	struct clair_buffer *free[CLASSES]; /* lock */
	size_t kept, keep;                  /* lock: bytes in free */
};

struct clair_pool *clair_pool_new(size_t keep)
{
	struct clair_pool *pool = calloc(1, sizeof *pool);

	if (!pool)
		return NULL;
	pthread_mutex_init(&pool->lock, NULL);
	pool->keep = keep;
	return pool;
}

static void destroy(struct clair_buffer *b)
{
	munmap(b->data, b->room);
	free(b);
}

void clair_pool_free(struct clair_pool *pool)
{
	if (!pool)
		return;
	for (int i = 0; i < CLASSES; i++) {
		while (pool->free[i]) {
			struct clair_buffer *b = pool->free[i];
			pool->free[i] = b->next;
			destroy(b);
		}
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
	}
	b = malloc(sizeof *b);
	if (!b)
		return NULL;
	b->next = NULL;
	b->room = class < CLASSES ? (size_t)SMALLEST << class : (size + 4095) & ~(size_t)4095;
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
	destroy(b);
}
