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
/* Of so many opens those that must lie together in an order. */
static inline uint32_t clair_learn_most(uint32_t count)
{
	return count - count / 6;
}

/* Local ranks are below this. */
#define CLAIR_LEARN_RANKS 4096
/* The most files of one sample. */
#define CLAIR_LEARN_GROUP 8
/* Searches by manifests and groups at the same time. */
#define CLAIR_LEARN_PROBES 4

/* The begin of a pass: who opened what. */
struct learn_start {
	uint64_t pass; /* its number */
	uint32_t count;
	uint32_t ids[CLAIR_LEARN_START];
	uint32_t nth[CLAIR_LEARN_START]; /* which open of its reader's in this pass */
	bool known[CLAIR_LEARN_START];   /* the reader is */
};

/* What the names of one sample's files have in common: what stands before the first dot, before
 * the last underscore, the folder. */
enum learn_key { CLAIR_KEY_STEM, CLAIR_KEY_PREFIX, CLAIR_KEY_FOLDER, CLAIR_KEYS };

/* Files that make a sample: the Gth lies under FOLDER[G], and its name ends in SUFFIX[G]. */
struct learn_grouping {
	unsigned group; /* 1: each file is a sample */
	enum learn_key key;
	uint32_t folder[CLAIR_LEARN_GROUP];
	char suffix[CLAIR_LEARN_GROUP][64];
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
		pid_t tid;
		struct clair_process process;
	} threads[256]; /* that opened something lately */
	unsigned thread_count;
	bool answered_opens; /* the answer is the opens of an earlier run */
	struct clair_words answer; /* that settled it; kept when it does not hold any more */
	uint32_t answer_folder;
	uint32_t world; /* of the readers' environment; 0: unknown */
	bool given_world;
	uint64_t ranks[CLAIR_LEARN_RANKS / 64]; /* a bit each that was seen */
	bool ranks_seen;
	bool ranks_due; /* the answer may lack some of them */

	_Atomic bool cancel;
	/* Of the thinking thread; immutable once READY. */
	struct learn_memory memory;
	bool ready;
	pthread_mutex_t saving; /* before lock; one at a time writes the opens */
	_Atomic uint64_t saved; /* how many opens were saved last */
	uint64_t tried_pass; /* the pass whose list was sought last, + 1 */
	unsigned tries;      /* passes over which it was sought in vain */
	struct learn_hypotheses *hypotheses;
	bool probed;
	/* Made by the thinking thread; those below the count stay as they are. */
	struct learn_probe *probes[CLAIR_LEARN_PROBES];
	_Atomic unsigned probe_count;
};

/* --- learn.c --------------------------------------------------------------------------------- */

/* Gives an answer. BEFORE: a pass that was opened before the newest one, for the replay. */
void clair_learn_hand_over(struct clair_learn *l, uint32_t folder,
			   const struct clair_words *words, bool of_opens,
			   const struct clair_pass *before);
/* The first COUNT opens of P. To be freed in any case. */
int clair_learn_copy_pass(const struct clair_pass *p, size_t count, struct clair_pass *out);
void clair_learn_free_pass(struct clair_pass *p);

/* --- learn_ranks.c --------------------------------------------------------------------------- */

/* A reader that was not seen before. lock */
void clair_learn_see_rank(struct clair_learn *l, const struct clair_process *who);
/* Tells of ranks that were seen since the answer. */
void clair_learn_update_ranks(struct clair_learn *l);

/* --- learn_files.c --------------------------------------------------------------------------- */

bool clair_learn_is_below(const struct clair_catalog *c, uint32_t id, uint32_t folder);
/* The folder that all FILES lie under, and no deeper one. */
uint32_t clair_learn_folder(const struct clair_catalog *c, const uint32_t *files, size_t count);
/* The paths of FILES relative to FOLDER, one a line. -EINVAL: one cannot be said so. */
int clair_learn_write_list(const struct clair_catalog *c, const char *file, uint32_t folder,
			   const uint32_t *files, size_t count);

/* --- learn_group.c --------------------------------------------------------------------------- */

/* Files that make a sample, from the opens of a pass that is over: 1 when they are not in
 * groups. */
unsigned clair_learn_group(const struct clair_catalog *c, const struct clair_pass *p);
/* The same from a pass that need not be over, and how their names are made. */
void clair_learn_find_grouping(const struct clair_catalog *c, const struct clair_pass *p,
			       struct learn_grouping *out);
/* Whether ID is the first file of a sample, by its name. */
bool clair_learn_is_first(const struct clair_catalog *c, const struct learn_grouping *g,
			  uint32_t id);
/* The Kth file of the sample whose first is ID; CLAIR_NO_ID: it is not there. */
uint32_t clair_learn_partner(const struct clair_catalog *c, const struct learn_grouping *g,
			     uint32_t id, unsigned k);
/* All readers' opens, one reader's after another's (heap); BEGINS has a place more than
 * readers. */
uint32_t *clair_learn_by_reader(const struct clair_pass *p, size_t *begins);

/* --- learn_probe.c --------------------------------------------------------------------------- */

/* Looks for manifests and groups in the opens so far, and starts what searches by them. */
void clair_learn_probe(struct clair_learn *l);
void clair_learn_probes_open(struct clair_learn *l, pid_t tid, uint32_t id);
void clair_learn_probes_again(struct clair_learn *l);
void clair_learn_probes_free(struct clair_learn *l);

/* --- learn_list.c: what a pass says without a sampler --------------------------------------- */

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
/* Whether NEEDED of the COUNT opens that MARK (by id) lie together in ORDER, by no accident
 * over 10^TRIALS orders; BEGIN is the first. */
bool clair_learn_lies_in(const uint8_t *mark, uint32_t count, uint32_t needed,
			 const uint32_t *order,
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

/* Whether the last COUNT opens are of several ranks of an answer that had fewer: ANSWER, over
 * FOLDER, has several. WORDS (empty before) is the same with the ranks that were seen. */
bool clair_learn_more_ranks(struct clair_learn *l, const struct clair_words *answer,
			    uint32_t folder, const uint32_t *ids, size_t count,
			    struct clair_words *words);

#endif
