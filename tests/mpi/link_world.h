/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_LINK_WORLD_H
#define CLAIR_LINK_WORLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "link.h"

/* A mount process's end of the link: frames out and in, and what a test knows of the job.
 * Whatever goes wrong ends the program with a line. */

#define WORLD_NODES 64
#define WORLD_WAIT_S 60 /* for anything */

struct world {
	int fd;
	uint32_t self, count;
	bool dead[WORLD_NODES];
	int64_t dead_at[WORLD_NODES];
	bool ended; /* END came */
	bool gone;  /* the peer process's end is closed; fails the test unless MAY_GO */
	bool may_go;
	uint64_t sends, sents, sents_dead;
	/* Called for each MESSAGE, BULKED (with its memfd) and UNLANDED. */
	void (*take)(struct world *w, const struct clair_link_frame *f, const char *small, int fd);
	void *data;
};

_Noreturn void world_fail(const struct world *w, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void world_send_frame(struct world *w, struct clair_link_frame f, const void *small, int fd);
/* Takes what comes within MS milliseconds, at least one look. */
void world_turn(struct world *w, int ms);
/* Until HELLO. */
void world_hello(struct world *w);
uint32_t world_living(const struct world *w); /* others */
void world_fill(void *at, uint64_t length, uint64_t seed);
bool world_filled(const void *at, uint64_t length, uint64_t seed);
/* Frames that no mount process sends, none of which does anything. */
void world_garbage(struct world *w);
uint64_t world_random(uint64_t seed, uint64_t i);

#endif
