/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DISCOVER_INTERNAL_H
#define CLAIR_DISCOVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "discover.h"
#include "usual_seeds.h"

/* Shared by the files discover*.c only. */

/* Opens that are kept: more say nothing new. */
#define CLAIR_DISCOVER_OPENS 16384
/* Threads that open, of which the last open is known. */
#define CLAIR_DISCOVER_READERS 256
/* An answer may be wrong with a chance of 10^-9. There are less than a hundred attempts (steps,
 * tests, kinds of orders); each one allows for the number of orders that it tries. */
#define CLAIR_DISCOVER_DIGITS 11
#define CLAIR_DISCOVER_NONE UINT32_MAX

/* --- what was opened, what it fits: discover_fit.c ------------------------------------------ */

/* One thread's opens: those of a loader's worker are in exact order. */
struct opener {
	pid_t pid;
	uint32_t *opens; /* indices into the opens, the first few of them */
	uint32_t count;
};

/* The opens that are thought about. */
struct opened {
	const uint32_t *ids;
	const pid_t *pids;
	size_t count;
	struct opener *openers;
	unsigned opener_count; /* 0: too many to tell */
};

int clair_opened_init(struct opened *o, const uint32_t *ids, const pid_t *pids, size_t count);
void clair_opened_finish(struct opened *o);

/* One numbering of the samples under one folder. */
struct numbering {
	const char *index; /* its name */
	const char *split; /* or NULL */
	uint32_t *ids, count;
	uint32_t *first; /* by number: which distinct open it was, NONE: none */
	uint64_t *bits;  /* by number: opened among the first `seen` */
	uint64_t *soon;  /* by number: among the first of these */
	uint64_t *early; /* by number: among the first CLAIR_EARLY opens of a thread */
	uint32_t *at;    /* by open: the sample's number, NONE: of others */
	uint32_t seen;   /* distinct opens of samples of this numbering */
	uint32_t strange; /* opens of others */
	/* Opens of its samples that were looked at, and those of them by a thread after
	 * another one's. */
	uint32_t own, again;
};

#define CLAIR_EARLY 4

/* N's ids, count, index and split are set; NUMBER_COUNT is one past the highest id. 0 or
 * -ENOMEM. */
int clair_numbering_fill(struct numbering *n, const struct opened *o, uint32_t number_count);
void clair_numbering_finish(struct numbering *n);
/* Whether several threads had the same samples: by accident that is seldom. */
static inline bool clair_numbering_repeats(const struct numbering *n)
{
	return n->own >= 24 && n->again > n->own / 5;
}

/* Entries of an order that must be among the first opens, for a chance of 10^-DIGITS among
 * 10^EXTRA orders; 0: there are not enough opens yet. */
uint32_t clair_fit_entries(const struct numbering *n, double extra);
/* Whether the threads' own sequences could say enough. */
bool clair_fit_early(const struct numbering *n, const struct opened *o, double extra);
/* How well the threads' own sequences follow ORDER (the rank's list, from its begin): the
 * chance of that is 10^-result. */
double clair_fit_digits(const struct numbering *n, const struct opened *o,
			const uint32_t *order, size_t count);
/* Whether the opens follow ORDER, one of 10^EXTRA that are tried. */
bool clair_fit(const struct numbering *n, const struct opened *o, const uint32_t *order,
	       size_t count, double extra);

/* --- trying: discover_try.c, discover_seeds.c ---------------------------------------------- */

struct clair_discover {
	struct clair_discover_config config;
	struct clair_words given;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t change;
	/* Under lock. */
	uint32_t *ids; /* several opens in a row by one thread removed */
	pid_t *pids;   /* beside them */
	size_t count, room;
	struct {
		pid_t pid;
		uint32_t last;
	} readers[CLAIR_DISCOVER_READERS]; /* by pid, one replaces another */
	unsigned asked; /* processes whose environment was read */
	int64_t begun_ns;
	bool stopping, finishing, settled, answered;
	uint64_t generation; /* counts up when it starts over */
	uint32_t world, rank; /* given or of the readers' environment; world 0: unknown */
	bool by_environment; /* they are of that */
	bool several;	     /* ranks opened something, or may have */
	const char *state;

	_Atomic bool cancel; /* a search is to end */
	/* The answers before, of the thinking thread: two make a stride. */
	bool has_last_seed, has_last_draw;
	uint32_t last_seed;
	uint64_t last_generator, last_draw;
};

struct trial {
	struct clair_discover *d;
	struct opened *opened;
	uint32_t folder;
	struct clair_words *words; /* the answer */
	struct numbering *all;
	size_t count;
	struct numbering *n;  /* of the answer, or that is tried */
	uint32_t world, rank; /* known, else 1, 0 */
	bool any_world;       /* not known */
	bool one_rank;	      /* all opens are of it, by the openers' environment */
};

/* What a trial may cost: torch's small seeds; whole orders by usual seeds; all seeds; as ranks of
 * small worlds, too, which is dearer than all the rest. */
enum effort { QUICK, CHEAP, DEAR, DEAREST };

/* Tries everything with these opens. True: *FOLDER and WORDS (empty
 * before) are the answer. */
bool clair_discover_try(struct clair_discover *d, struct opened *opened,
			enum effort effort,
			uint32_t *folder, struct clair_words *words);
/* The folder that all of these lie under, and no deeper one. */
uint32_t clair_discover_folder(const struct clair_catalog *c, const uint32_t *ids,
			       size_t count);
/* Writes the words of an answer. 0 or -ENOMEM. */
int clair_trial_answer(struct trial *t, const char *sampler, uint64_t seed, bool has_seed);
int clair_trial_number(struct clair_words *words, const char *word, uint64_t value);

/* torch's seeds [BEGIN, END) over the first NUMBERINGS; WORLDS: also as a rank of worlds up
 * to that, when it is not known. True: t->words is the answer. */
bool clair_try_seeds(struct trial *t, size_t numberings, uint32_t worlds, uint64_t begin,
		     uint64_t end);
/* Usual seeds, as a rank of all worlds up to 64. */
bool clair_try_worlds(struct trial *t);
/* RandomSampler on torch's default generator, seeded with a usual seed: soon after that. */
bool clair_try_early_draws(struct trial *t);
/* The same after a model was made: the few most usual seeds, the models that are known. */
bool clair_try_model_draws(struct trial *t, size_t numberings);

/* All seeds of CPython's generator, as fastai's epochs have one each. */
bool clair_try_python(struct trial *t);

#endif
