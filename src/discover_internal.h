/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DISCOVER_INTERNAL_H
#define CLAIR_DISCOVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "discover.h"

/* Shared by discover.c and discover_try.c only. */

/* Opens that are kept: more say nothing new. */
#define CLAIR_DISCOVER_OPENS 16384

/* One numbering of the samples under one folder. */
struct numbering {
	const char *index; /* its name */
	const char *split; /* or NULL */
	uint32_t *ids, count;
	uint32_t *first; /* by number: which distinct open it was, UINT32_MAX: none */
	uint64_t *bits;  /* by number: opened among the first `seen` */
	uint32_t seen;   /* distinct opens of samples of this numbering */
	uint32_t strange; /* opens of others */
};

struct clair_discover {
	struct clair_discover_config config;
	struct clair_words given;
	char *memory;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	/* Under lock. */
	uint32_t *ids; /* distinct opens in a row removed */
	size_t count, room;
	int64_t begun_ns;
	bool stopping, finishing, settled, answered;
	uint64_t generation; /* counts up when it starts over */
	uint32_t world, rank; /* of the readers' environment; world 0: unknown */
	const char *state;

	_Atomic bool cancel; /* a search is to end */
	/* The answer before, of the thinking thread: two make a stride. */
	bool has_last_seed, has_last_draw;
	uint32_t last_seed;
	uint64_t last_generator, last_draw;
};

/* Tries everything with the first COUNT opens. FULL: also all seeds. True: *FOLDER and WORDS
 * (empty before) are the answer. */
bool clair_discover_try(struct clair_discover *d, const uint32_t *ids, size_t count,
			bool full, uint32_t *folder, struct clair_words *words);
/* The folder that all of these lie under, and no deeper one. */
uint32_t clair_discover_folder(const struct clair_catalog *c, const uint32_t *ids,
			       size_t count);

#endif
