/* SPDX-License-Identifier: BSD-3-Clause */
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

const char *clair_place_name(enum clair_place place)
{
	static const char *const names[CLAIR_PLACES] = {
		[CLAIR_PLACE_RAM] = "ram",
		[CLAIR_PLACE_CACHE] = "cache",
		[CLAIR_PLACE_PEER_RAM] = "peer-ram",
		[CLAIR_PLACE_PEER_CACHE] = "peer-cache",
		[CLAIR_PLACE_PFS] = "pfs",
	};

	return place < CLAIR_PLACES ? names[place] : "none";
}

/* --- curves ------------------------------------------------------------------------ */

/* The first point that is not before CLIENTS. */
static uint32_t find(const struct clair_curve *c, double clients)
{
	uint32_t i = 0;

	while (i < c->count && c->at[i].clients < clients)
		i++;
	return i;
}

double clair_curve_rate(const struct clair_curve *c, double clients)
{
	uint32_t i = find(c, clients);

	if (!c->count)
		return 0;
	if (i == 0)
		return c->at[0].rate;
	if (i == c->count)
		return c->at[i - 1].rate;
	double part = (clients - c->at[i - 1].clients) /
		      (c->at[i].clients - c->at[i - 1].clients);
	return c->at[i - 1].rate + part * (c->at[i].rate - c->at[i - 1].rate);
}

static bool is_positive(double x)
{
	return isfinite(x) && x > 0;
}

int clair_curve_set(struct clair_curve *c, double clients, double rate)
{
	if (!is_positive(clients) || !is_positive(rate))
		return -EINVAL;
	uint32_t i = find(c, clients);
	if (i == c->count || c->at[i].clients > clients) {
		if (c->count == CLAIR_CURVE_POINTS)
			return -ENOSPC;
		memmove(&c->at[i + 1], &c->at[i], (c->count - i) * sizeof c->at[0]);
		c->at[i].clients = clients;
		c->count++;
	}
	c->at[i].rate = rate;
	return 0;
}

static double between(double old, double new, double part)
{
	return old > 0 ? old + part * (new - old) : new;
}

/* Where there is no point yet, one begins at what was assumed there; a full curve moves the
 * nearest. */
static void curve_observe(struct clair_curve *c, double clients, double rate, double part)
{
	if (clair_curve_set(c, clients,
			    between(clair_curve_rate(c, clients), rate, part)) != -ENOSPC)
		return;
	uint32_t i = find(c, clients);
	if (i == c->count ||
	    (i && clients - c->at[i - 1].clients < c->at[i].clients - clients))
		i--;
	c->at[i].rate = between(c->at[i].rate, rate, part);
}

/* --- times ------------------------------------------------------------------------- */

static double at_least_one(double x)
{
	return x > 1 ? x : 1;
}

/* What one of its threads gets. */
static double share_of(const struct clair_curve *c, double threads)
{
	return clair_curve_rate(c, at_least_one(threads)) / at_least_one(threads);
}

/* What is not known (0) is no limit. */
static double through(double link, double rate)
{
	if (link <= 0 || rate <= 0)
		return link > 0 ? link : rate;
	return link < rate ? link : rate;
}

static double time_of(uint64_t bytes, double rate)
{
	return rate > 0 ? (double)bytes / rate : HUGE_VAL;
}

/* Bandwidth of one fetch, 0 when it is not known. */
static double fetch_rate(const struct clair_model *m, enum clair_place place, double clients)
{
	switch (place) {
	case CLAIR_PLACE_RAM:
		return share_of(&m->ram.read, m->ram.threads);
	case CLAIR_PLACE_CACHE:
		return share_of(&m->cache.read, m->cache.threads);
	case CLAIR_PLACE_PEER_RAM:
		return through(m->link, share_of(&m->ram.read, m->ram.threads));
	case CLAIR_PLACE_PEER_CACHE:
		return through(m->link, share_of(&m->cache.read, m->cache.threads));
	case CLAIR_PLACE_PFS:
		return through(m->pfs_link, share_of(&m->pfs, clients));
	case CLAIR_PLACES:
		break;
	}
	return 0;
}

double clair_model_fetch(const struct clair_model *m, enum clair_place place, uint64_t bytes,
			 double clients)
{
	return time_of(bytes, fetch_rate(m, place, clients));
}

double clair_model_write(const struct clair_model *m, uint64_t bytes)
{
	double preprocess = m->preprocess > 0 ? (double)bytes / m->preprocess : 0;
	double write = m->staging.write.count ?
			       time_of(bytes, share_of(&m->staging.write, m->staging.threads)) :
			       0;

	return preprocess > write ? preprocess : write;
}

double clair_model_consume(const struct clair_model *m, uint64_t bytes)
{
	return m->compute > 0 ? (double)bytes / m->compute : 0;
}

enum clair_place clair_model_choose(const struct clair_model *m, unsigned where,
				    uint64_t bytes, double clients)
{
	enum clair_place best = CLAIR_PLACES;
	double least = HUGE_VAL;

	for (unsigned i = 0; i < CLAIR_PLACES; i++) {
		enum clair_place place = (enum clair_place)i;

		if (!(where >> i & 1))
			continue;
		double seconds = clair_model_fetch(m, place, bytes, clients);
		if (best == CLAIR_PLACES || seconds < least) {
			best = place;
			least = seconds;
		}
	}
	return best;
}

/* --- what was measured --------------------------------------------------------------- */

/* The link (NULL: there is none) or the SHARE of a thread or client: the narrower one. */
static void observe_way(double *link, struct clair_curve *c, double clients, double rate,
			double part)
{
	double share = share_of(c, clients);

	if (link && *link > 0 && (share <= 0 || *link <= share))
		*link = between(*link, rate, part);
	else
		curve_observe(c, at_least_one(clients), rate * at_least_one(clients), part);
}

static void observe_peer(struct clair_model *m, struct clair_model_class *class, double rate,
			 double part)
{
	double share = share_of(&class->read, class->threads);

	if (m->link <= 0 && (share <= 0 || rate < share))
		m->link = rate;
	else
		observe_way(&m->link, &class->read, class->threads, rate, part);
}

void clair_model_observe(struct clair_model *m, enum clair_place place, uint64_t bytes,
			 double seconds, double clients)
{
	if (!bytes || !is_positive(seconds))
		return;
	double rate = (double)bytes / seconds;
	double part = -expm1(-seconds / CLAIR_MODEL_MEMORY);

	switch (place) {
	case CLAIR_PLACE_RAM:
		observe_way(NULL, &m->ram.read, m->ram.threads, rate, part);
		break;
	case CLAIR_PLACE_CACHE:
		observe_way(NULL, &m->cache.read, m->cache.threads, rate, part);
		break;
	case CLAIR_PLACE_PEER_RAM:
		observe_peer(m, &m->ram, rate, part);
		break;
	case CLAIR_PLACE_PEER_CACHE:
		observe_peer(m, &m->cache, rate, part);
		break;
	case CLAIR_PLACE_PFS:
		observe_way(&m->pfs_link, &m->pfs, clients, rate, part);
		break;
	case CLAIR_PLACES:
		break;
	}
}
