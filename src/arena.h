/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ARENA_H
#define CLAIR_ARENA_H

#include <stddef.h>
#include <stdint.h>

/* The RAM tier of the daemon's own: one memfd, filled from the start to the end. What is in
 * it stays for the run, so nothing is ever moved or reused and pointers into it stay valid
 * until it is freed. No locks: the caller serialises clair_arena_alloc. */
struct clair_arena;

#define CLAIR_ARENA_UNIT 64u /* extents begin at multiples of this; the loss a sample */
#define CLAIR_ARENA_NONE UINT32_MAX

/* Room for BYTES; memory is taken when it is written. 0 or a negative errno. */
int clair_arena_new(uint64_t bytes, struct clair_arena **out);
/* The memfd, for another process to map; stays the arena's. *BYTES: its length. */
int clair_arena_fd(const struct clair_arena *arena, uint64_t *bytes);
void clair_arena_free(struct clair_arena *arena);
/* An extent of SIZE bytes, as its number in units, or CLAIR_ARENA_NONE: full. */
uint32_t clair_arena_alloc(struct clair_arena *arena, uint64_t size);
/* Gives back the extent that was taken last; any other one is lost until the end. */
void clair_arena_undo(struct clair_arena *arena, uint32_t at, uint64_t size);
unsigned char *clair_arena_at(const struct clair_arena *arena, uint32_t at);
uint64_t clair_arena_used(const struct clair_arena *arena);

#endif
