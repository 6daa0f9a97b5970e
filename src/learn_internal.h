/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_LEARN_INTERNAL_H
#define CLAIR_LEARN_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "learn.h"
#include "opens.h"
#include "remember.h"
#include "stream.h"

/* Shared by learn*.c only. */

/* Chance of a false answer: 10^-9, and this many digits for the orders that are tried. */
#define CLAIR_LEARN_DIGITS 9
#define CLAIR_LEARN_TRIALS 5
/* Opens of a pass's begin that are looked at. */
#define CLAIR_LEARN_START 256
/* Samples of each worker's that a hypothesis is held against. */
#define CLAIR_LEARN_NTH 16u
/* The most files of one sample. */
#define CLAIR_LEARN_GROUP 8

/* The begin of a pass: who opened what. */
struct learn_start {
	uint64_t pass; /* its number */
	uint32_t count;
	uint32_t ids[CLAIR_LEARN_START];
	uint32_t nth[CLAIR_LEARN_START]; /* which open of its reader's in this pass */
	bool known[CLAIR_LEARN_START];   /* the reader is */
};

/* How workers share a sampler's order: batch i goes to worker i mod WORKERS. */
struct learn_deal {
	uint32_t workers, batch;
	unsigned group; /* files a sample */
};

/* One pass that is over, in a sampler's order: FILES[k * group + g]. */
struct learn_pass {
	struct learn_deal deal;
	uint32_t *files; /* owned */
	uint32_t samples;
};

/* An earlier run, as far as it is remembered. */
struct learn_memory {
	struct clair_words words; /* empty: none */
	uint32_t folder;
	struct clair_stream *stream;
	struct clair_remembered *opens;
	uint32_t *ids; /* of the dataset order that OPENS number; owned */
};

struct clair_learn {
	struct clair_learn_config config;
	struct clair_words given;
	char *memory_file, *opens_file, *list_file; /* or NULL */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	/* Under lock. */
	struct clair_opens opens;
	bool stopping, settled, wanted, finishing;
	bool recording; /* opens are still kept */
	uint64_t begun; /* total opens when it began to look (again) */
	uint64_t generation;
	struct clair_learn_state state;
	struct {
		pid_t tid, pid;
		uint64_t started;
	} threads[64]; /* that opened something lately */
	unsigned thread_count;
	bool answered_opens; /* the answer is the opens of an earlier run */
	struct clair_words answer; /* that settled it, to be remembered */
	uint32_t answer_folder;
	uint32_t world; /* of the readers' environment; 0: unknown */

	_Atomic bool cancel;
	/* Of the thinking thread; immutable once READY. */
	struct learn_memory memory;
	bool ready;
	uint64_t tried_pass; /* the pass whose list was sought last, + 1 */
	unsigned tries;      /* passes over which it was sought in vain */
	struct learn_hypotheses *hypotheses;
};

/* --- learn_list.c: what a pass says without a sampler --------------------------------------- */

/* Files that make a sample, from the opens of one pass: 1 when they are not in groups. */
unsigned clair_learn_group(const struct clair_catalog *c, const struct clair_pass *p);
/* Batch sizes that explain how many samples each reader opened: at most ROOM, likely ones
 * first. */
size_t clair_learn_batches(const struct clair_pass *p, unsigned group, uint32_t *batches,
			   size_t room);
/* P in the sampler's order, if it was dealt like this. 0, -EINVAL (it was not), -ENOMEM. */
int clair_learn_order(const struct clair_pass *p, const struct learn_deal *deal,
		      struct learn_pass *out);
/* Whether the pass that begins with START is the one that FILES say: KNOWN, the first
 * CLAIR_LEARN_NTH samples of each worker, else the first COUNT files of the order. */
bool clair_learn_follows(const struct learn_start *start, const struct learn_deal *deal,
			 uint32_t samples, const uint32_t *files, uint32_t count, bool known);
/* Whether most of the COUNT opens that MARK (by id) lie together in ORDER, by no accident over
 * TRIALS orders; BEGIN is the first. */
bool clair_learn_lies_in(const uint8_t *mark, uint32_t count, const uint32_t *order,
			 uint32_t length, uint32_t files, double trials, uint32_t *begin);

/* --- learn_try.c: lists ------------------------------------------------------------------------ */

/* Makes the orders that usual samplers with usual seeds would go on with after P, epoch EPOCH,
 * the likeliest at once, the others when opens have come that do not fit those. True: *FOLDER and WORDS are the answer. */
bool clair_learn_try(struct clair_learn *l, const struct clair_pass *p, uint64_t epoch,
		     const struct learn_start *start, uint32_t *folder,
		     struct clair_words *words);
/* The same with the opens that came since. */
bool clair_learn_retry(struct clair_learn *l, uint32_t *folder, struct clair_words *words);
void clair_learn_forget(struct clair_learn *l);
/* The begin of the pass that is open. lock */
void clair_learn_take_start(struct clair_learn *l, struct learn_start *start);

/* --- learn_memory.c ------------------------------------------------------------------------------ */

void clair_learn_load(struct clair_learn *l);
void clair_learn_unload(struct clair_learn *l);
/* Whether the last COUNT opens are of the earlier run. */
bool clair_learn_recall(struct clair_learn *l, const uint32_t *ids, size_t count,
			uint32_t *folder, struct clair_words *words, bool *of_opens);

#endif
