/* SPDX-License-Identifier: BSD-3-Clause */
/* From where a sample is fetched, of the places that have it: by the model, whose bandwidths are
 * measured as fetches end. The stage's lock is taken inside. */
#include "stage_internal.h"

/* The source is everybody's, and each byte shall leave it once: it is asked for what another
 * node keeps only when that node is slow, as readers feel it, and the source much faster. The
 * slow one is asked now and then, so that it is seen when it is slow no more. What waits for
 * it already does not count: a busy node is not a slow one. */
#define MUCH 4.0
#define SLOW_S 0.05
#define PROBE 16u

static const uint8_t place_of_way[WAYS] = { CLAIR_PLACE_CACHE, CLAIR_PLACE_PFS };

void clair_stage_set_model(struct clair_stage *st, const struct clair_model *model)
{
	autolock(&st->lock);
	st->model = *model;
}

int64_t stage_way_begin(struct clair_stage *st, enum stage_way way, uint64_t bytes)
{
	int64_t now = clair_now_ns();

	autolock(&st->lock);
	st->ways[way].waiting += bytes;
	st->ways[way].loads++;
	if (way == WAY_SOURCE && st->peers)
		clair_peers_load(st->peers, st->ways[way].loads);
	return now;
}

/* The time that counts for one of several fetches at once: since the one before it ended. */
void stage_way_end(struct clair_stage *st, enum stage_way way, uint64_t bytes, int64_t begun,
		   bool ok)
{
	int64_t now = clair_now_ns();
	double clients = way == WAY_SOURCE && st->peers ? clair_peers_loading(st->peers) : 1;

	autolock(&st->lock);
	struct way *w = &st->ways[way];
	w->waiting -= bytes;
	w->loads--;
	if (way == WAY_SOURCE && st->peers)
		clair_peers_load(st->peers, w->loads);
	int64_t from = w->ended > begun ? w->ended : begun;
	w->ended = now;
	if (ok)
		clair_model_observe(&st->model, place_of_way[way], bytes,
				    (double)(now - from) / 1e9, clients);
}

void stage_tell_held(struct clair_stage *st)
{
	struct clair_disk_usage usage;
	uint64_t cache = 0;

	for (size_t i = 0; i < st->config.disk_count; i++) {
		clair_disk_usage(st->config.disks[i], &usage);
		cache += usage.bytes;
	}
	pthread_mutex_lock(&st->lock);
	uint64_t ram = st->ram.bytes;
	pthread_mutex_unlock(&st->lock);
	clair_peers_hold(st->peers, ram, cache);
}

bool stage_prefers_source(struct clair_stage *st, uint16_t node, uint64_t bytes)
{
	double peer = clair_peers_expect(st->peers, node, bytes);
	double clients = clair_peers_loading(st->peers);

	if (peer < SLOW_S)
		return false;
	autolock(&st->lock);
	double source = clair_model_fetch(&st->model, CLAIR_PLACE_PFS, bytes, clients);
	return peer > MUCH * source && ++st->probes % PROBE != 0;
}

bool stage_prefers_peer(struct clair_stage *st, uint16_t node, uint64_t bytes)
{
	double peer = clair_peers_expect(st->peers, node, bytes);

	if (peer <= 0)
		return false;
	autolock(&st->lock);
	double cache = clair_model_fetch(&st->model, CLAIR_PLACE_CACHE,
					 st->ways[WAY_CACHE].waiting + bytes, 1);
	/* Not known (HUGE_VAL): the directory is tried first, and then it is. */
	return cache < HUGE_VAL && cache > SLOW_S && cache > MUCH * peer &&
	       ++st->probes % PROBE != 0;
}
