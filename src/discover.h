/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DISCOVER_H
#define CLAIR_DISCOVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "catalog.h"
#include "words.h"

/* Finds an order from the opens of a running job: dataset order, sampler, seed, world and
 * rank. A thread of its own thinks, at the lowest priority; what it finds is handed over by a
 * callback. What was found in an earlier run is learn.h's.
 *
 * An answer is given only when the chance that opens which have nothing to do with it fit
 * it that well, times the number of orders tried, is below 10^-9. */
struct clair_discover;

struct clair_discover_config {
	const struct clair_catalog *catalog; /* NULL: samples are only numbers */
	uint32_t samples; /* how many, without a catalog; they stand for ids then */
	const struct clair_words *given; /* what the user said: it is not guessed. Copied */
	unsigned threads; /* of the search of all seeds; 0: one less than the cores */
	/* Called once an answer, by the thinking thread. FOLDER: the stream's; WORDS: what
	 * makes the stream (sampler, index, seed, …, how=found), not kept. IDS:
	 * the opens so far, oldest first. Returns false to go on looking. */
	bool (*found)(void *arg, uint32_t folder, const struct clair_words *words,
		      const uint32_t *ids, size_t count);
	void *arg;
};

int clair_discover_new(const struct clair_discover_config *config,
		       struct clair_discover **out);
/* One open of a file by thread PID (0: unknown): its own opens are taken to be in exact order,
 * several in a row of one file as one. Cheap; any thread. */
void clair_discover_open(struct clair_discover *discover, pid_t pid, uint32_t id);
/* The answer did not hold: forget the opens so far, look again. */
void clair_discover_again(struct clair_discover *discover);
/* Waits until everything that the opens so far allow has been tried: true when an answer
 * was given. For `clairfs discover`. */
bool clair_discover_finish(struct clair_discover *discover);
void clair_discover_free(struct clair_discover *discover); /* takes NULL */

/* What it does now, for status: static text. SECONDS since the first open, OPENS so far. */
const char *clair_discover_state(struct clair_discover *discover, double *seconds,
				 uint64_t *opens);

#endif
