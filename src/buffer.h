/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_BUFFER_H
#define CLAIR_BUFFER_H

#include <stddef.h>

/* A pool of page-aligned buffers. Freed ones are kept, up to a limit, so that loads do not
 * pay for fresh pages. Thread-safe: its own mutex, a leaf. */
struct clair_pool;

struct clair_buffer {
	unsigned char *data;
	size_t room; /* bytes, a multiple of 4096 */
	struct clair_buffer *next; /* the pool's */
};

/* KEEP: bytes of free buffers that the pool holds at most. NULL: no memory. */
struct clair_pool *clair_pool_new(size_t keep);
void clair_pool_free(struct clair_pool *pool); /* all buffers were given back */
/* A buffer of at least SIZE bytes, NULL when there is no memory. */
struct clair_buffer *clair_buffer_get(struct clair_pool *pool, size_t size);
void clair_buffer_put(struct clair_pool *pool, struct clair_buffer *buffer);

#endif
