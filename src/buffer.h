/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_BUFFER_H
#define CLAIR_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* A pool of page-aligned buffers. Freed ones are kept, up to a limit, so that loads do not
 * pay for fresh pages. Thread-safe: its own mutex, a leaf. */
struct clair_pool;

#define CLAIR_NOT_SHARED UINT64_MAX

struct clair_buffer {
	unsigned char *data;
	size_t room;     /* bytes, a multiple of 4096 */
	uint64_t offset; /* in the pool's shared memory, or CLAIR_NOT_SHARED */
	struct clair_buffer *next; /* the pool's */
};

/* KEEP: bytes of free buffers that the pool holds at most. NULL: no memory. */
struct clair_pool *clair_pool_new(size_t keep);
/* From now on buffers of up to 4 MiB come from one memfd of BYTES, which another process may
 * map, while there is room in it. Before the first buffer. The pool's descriptor, or a
 * negative errno. */
int clair_pool_share(struct clair_pool *pool, uint64_t bytes);
void clair_pool_free(struct clair_pool *pool); /* all buffers were given back */
/* A buffer of at least SIZE bytes, NULL when there is no memory. */
struct clair_buffer *clair_buffer_get(struct clair_pool *pool, size_t size);
void clair_buffer_put(struct clair_pool *pool, struct clair_buffer *buffer);

#endif
