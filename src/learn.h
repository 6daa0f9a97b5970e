/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_LEARN_H
#define CLAIR_LEARN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "catalog.h"
#include "manifest.h"
#include "words.h"

/* What the search for seeds (discover.h) cannot find, from the opens of a running job: an order
 * that an earlier run had; a dataset order of the job's own (a manifest, a filter), from the
 * begin of the second epoch on, when a usual sampler with a usual seed explains both; which
 * files make one sample. Remembers what was found, else the opens themselves. A thread of its
 * own thinks at a low priority. */
struct clair_learn;

struct clair_learn_config {
	const struct clair_catalog *catalog;
	const struct clair_words *given; /* what the user said. Copied */
	/* The JSON file of remember.h, or NULL: nothing is remembered. Beside it, with other
	 * endings, lie the opens (.opens) and a learnt dataset order (.list). */
	const char *memory;
	/* Reads manifests; NULL: they are not looked for. */
	clair_manifest_read *read;
	void *read_arg;
	unsigned threads; /* as in discover.h, like the next */
	bool (*found)(void *arg, uint32_t folder, const struct clair_words *words,
		      const uint32_t *ids, size_t count);
	/* The answer holds, but more ranks read here than it has: WORDS are the same with all
	 * of them, IDS the opens of the pass that is open. False: it was not taken. May be
	 * NULL. */
	bool (*ranks)(void *arg, uint32_t folder, const struct clair_words *words,
		      const uint32_t *ids, size_t count);
	void *arg;
};

int clair_learn_new(const struct clair_learn_config *config, struct clair_learn **out);
/* One open of a file by thread TID (0: unknown). Cheap; any thread. */
void clair_learn_open(struct clair_learn *learn, pid_t tid, uint32_t id);
/* Somebody found the order: it is remembered, nothing is sought. */
void clair_learn_settle(struct clair_learn *learn, uint32_t folder,
			const struct clair_words *words);
/* The answer did not hold: look again. What was opened stays remembered. */
void clair_learn_again(struct clair_learn *learn);
/* Where WORDS have several ranks: those whose readers were seen here, by their environment. */
int clair_learn_set_ranks(struct clair_learn *learn, struct clair_words *words);
/* Whether the ranks in WORDS are all that read here, as far as their environment says. */
bool clair_learn_knows_ranks(struct clair_learn *learn, const struct clair_words *words);
/* Whether WORDS say what the earlier run found. */
bool clair_learn_is_remembered(struct clair_learn *learn, const struct clair_words *words);
/* Waits until everything that the opens so far allow has been tried. For tests. */
void clair_learn_finish(struct clair_learn *learn);
/* Saves what is to be remembered. TRUSTED: the opens follow the answer, if there is one. */
void clair_learn_save(struct clair_learn *learn, bool trusted);
void clair_learn_free(struct clair_learn *learn); /* takes NULL */

struct clair_learn_state {
	uint64_t opens;  /* samples' opens that were seen, repeats left out */
	uint64_t passes; /* that have begun */
	unsigned workers; /* reading processes of the last pass */
	unsigned group;  /* files a sample; 0: not known */
	const char *why; /* why the order is not known: static text */
};
void clair_learn_state(struct clair_learn *learn, struct clair_learn_state *state);

#endif
