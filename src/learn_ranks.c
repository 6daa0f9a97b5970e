/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks of the job read here, by the environment of their readers. */
#include "learn_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "log.h"

void clair_learn_see_rank(struct clair_learn *l, const struct clair_process *who)
{
	if (!who->world || who->rank >= CLAIR_LEARN_RANKS)
		return;
	if (!l->given_world && l->world != who->world) {
		l->world = who->world;
		/* Another job: its ranks are others. */
		memset(l->ranks, 0, sizeof l->ranks);
	}
	uint64_t bit = 1ull << who->rank % 64, *word = &l->ranks[who->rank / 64];
	if (*word & bit)
		return;
	*word |= bit;
	l->ranks_seen = true;
	l->ranks_due = true;
	pthread_cond_broadcast(&l->change);
}

/* lock */
static int set_ranks(const struct clair_learn *l, struct clair_words *words)
{
	const char *world = clair_words_get(words, "world");
	char text[4096] = "";
	size_t n = 0;

	if (!world || l->world < 2 || strtoul(world, NULL, 10) != l->world ||
	    clair_words_get(&l->given, "ranks"))
		return 0;
	for (uint32_t r = 0; r < CLAIR_LEARN_RANKS && n + 8 < sizeof text; r++)
		if (l->ranks[r / 64] >> r % 64 & 1)
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%u", n ? "," : "", r);
	return n ? clair_words_set(words, "ranks", text) : 0;
}

int clair_learn_set_ranks(struct clair_learn *l, struct clair_words *words)
{
	autolock(&l->lock);
	return set_ranks(l, words);
}

bool clair_learn_knows_ranks(struct clair_learn *l, const struct clair_words *words)
{
	const char *world = clair_words_get(words, "world");
	unsigned long ranks = world ? strtoul(world, NULL, 10) : 1;

	autolock(&l->lock);
	return ranks < 2 || (l->world == ranks && (l->given_world || l->ranks_seen));
}

/* The answer with the ranks of now, and the opens of the pass that is open: false when it has
 * those ranks. */
static bool take_ranks(struct clair_learn *l, struct clair_words *words, uint32_t *folder,
		       uint64_t *generation, struct clair_pass *newest)
{
	const struct clair_pass *p;

	autolock(&l->lock);
	l->ranks_due = false;
	if (!l->settled || l->answered_opens || !l->config.ranks ||
	    clair_words_copy(words, &l->answer) < 0 || set_ranks(l, words) < 0)
		return false;
	const char *now = clair_words_get(words, "ranks");
	const char *before = clair_words_get(&l->answer, "ranks");
	if (!now || (before && !strcmp(now, before)))
		return false;
	*folder = l->answer_folder;
	*generation = l->generation;
	p = clair_opens_newest(&l->opens);
	return clair_learn_copy_pass(p, p->count, newest) == 0;
}

void clair_learn_update_ranks(struct clair_learn *l)
{
	struct clair_words words = { 0 };
	struct clair_pass newest = { 0 };
	uint64_t generation;
	uint32_t folder;
	bool current = false;

	if (take_ranks(l, &words, &folder, &generation, &newest) &&
	    l->config.ranks(l->config.arg, folder, &words, newest.ids, newest.count)) {
		pthread_mutex_lock(&l->lock);
		current = l->settled && l->generation == generation &&
			  clair_words_set(&l->answer, "ranks",
					  clair_words_get(&words, "ranks")) == 0 &&
			  !l->ranks_due; /* then it is not the last */
		pthread_mutex_unlock(&l->lock);
	}
	if (current && l->memory_file && !clair_words_get(&words, "epochs") &&
	    clair_remember_save(l->memory_file, l->config.catalog, folder, &words) < 0)
		log_warning("%s: what was found is not remembered", l->memory_file);
	clair_learn_free_pass(&newest);
	clair_words_finish(&words);
}
