/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "log.h"
#include "stage_internal.h"

/* Loads in flight before anything was measured. */
#define FIRST_LIMIT 4u
#define STOP_NS (2 * CLAIR_NS_PER_S - 200 * CLAIR_NS_PER_MS)

static_assert(sizeof(struct sample) == 8, "one a sample");

/* What directories still have from earlier mounts. */
static void find_on_disks(struct clair_stage *st)
{
	for (size_t d = st->config.disk_count; d-- > 0;)
		for (uint32_t id = 0; id < st->count; id++)
			if (clair_disk_has(st->config.disks[d], id))
				st->samples[id].disk = (uint8_t)(d + 1);
}

int clair_stage_new(const struct clair_stage_config *config, struct clair_stage **out)
{
	struct clair_stage *st = calloc(1, sizeof *st);

	if (!st)
		return -ENOMEM;
	st->config = *config;
	st->config.disks = NULL;
	st->catalog = config->catalog;
	st->count = clair_catalog_count(config->catalog);
	st->ram.limit = config->ram;
	st->staging.limit = config->staging;
	st->keep = CLAIR_KEEP_AUTO;
	st->limit = config->threads ? config->threads : FIRST_LIMIT;
	if (st->limit > MAX_WORKERS)
		st->limit = MAX_WORKERS;
	pthread_mutex_init(&st->order, NULL);
	pthread_mutex_init(&st->turn, NULL);
	/* Held for a microsecond at a time: spinning is cheaper than sleeping. */
	pthread_mutexattr_t adaptive;
	pthread_mutexattr_init(&adaptive);
	pthread_mutexattr_settype(&adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
	pthread_mutex_init(&st->lock, &adaptive);
	pthread_mutexattr_destroy(&adaptive);
	clair_cond_init(&st->work);
	clair_cond_init(&st->quiet);
	clair_cond_init(&st->served);
	st->pool = clair_pool_new(POOL_BYTES);
	st->samples = calloc(st->count, sizeof *st->samples);
	st->config.disks = calloc(config->disk_count + 1, sizeof(struct clair_disk *));
	if (config->disk_count)
		st->hashes = malloc(sizeof *st->hashes * st->count);
	if (!st->pool || !st->samples || !st->config.disks ||
	    (config->disk_count && !st->hashes)) {
		clair_stage_free(st);
		return -ENOMEM;
	}
	for (size_t i = 0; i < config->disk_count; i++)
		st->config.disks[i] = config->disks[i];
	find_on_disks(st);
	*out = st;
	return 0;
}

int clair_stage_start(struct clair_stage *st)
{
	autolock(&st->lock);
	st->started = true;
	int r = stage_spawn(st);
	if (r == 0)
		stage_kick(st);
	return r;
}

void clair_stage_stop(struct clair_stage *st)
{
	struct timespec deadline = clair_deadline(STOP_NS);

	if (st->peers)
		clair_peers_stop_asking(st->peers);
	pthread_mutex_lock(&st->lock);
	st->stopping = true;
	pthread_cond_broadcast(&st->work);
	pthread_cond_broadcast(&st->served);
	while (st->alive &&
	       pthread_cond_timedwait(&st->quiet, &st->lock, &deadline) != ETIMEDOUT)
		;
	unsigned workers = st->worker_count;
	st->abandoned = st->alive > 0;
	unsigned servers = st->server_count;
	st->worker_count = st->server_count = 0;
	bool abandoned = st->abandoned;
	pthread_mutex_unlock(&st->lock);
	if (abandoned)
		log_warning("a call into the source hangs; its thread is left behind");
	for (unsigned i = 0; i < workers; i++) {
		if (abandoned)
			pthread_detach(st->workers[i]);
		else
			pthread_join(st->workers[i], NULL);
	}
	for (unsigned i = 0; i < servers; i++) {
		if (abandoned)
			pthread_detach(st->servers[i]);
		else
			pthread_join(st->servers[i], NULL);
	}
	stage_refuse_serves(st);
}

static void finish_stream(struct stream *s)
{
	for (size_t l = 0; l < s->lane_count; l++) {
		clair_epoch_put(s->lanes[l].now);
		clair_epoch_put(s->lanes[l].then);
		free(s->lanes[l].done);
	}
	free(s->lanes);
	clair_tracker_free(s->tracker);
	clair_stream_free(s->stream);
}

void clair_stage_free(struct clair_stage *st)
{
	if (!st || st->abandoned) /* its threads may still come back */
		return;
	assert(!st->worker_count);
	stage_leave_peers(st);
	while (st->spills) {
		struct flight *f = st->spills;
		st->spills = f->next_spill;
		flight_put(st, f);
	}
	while (st->oldest)
		flight_unhold(st, st->oldest);
	while (st->fillings) {
		struct filling *l = st->fillings;
		st->fillings = l->next;
		free(l);
	}
	while (st->larges) {
		struct large *l = st->larges;
		st->larges = l->next;
		while (l->loaded) {
			struct flight *f = l->loaded;
			l->loaded = f->next_spill;
			flight_put(st, f);
		}
		stage_free_large(st, l);
	}
	stage_close_files(st);
	while (st->piece_hashes) {
		struct piece_hashes *h = st->piece_hashes;
		st->piece_hashes = h->next;
		free(h);
	}
	for (size_t i = 0; i < st->stream_count; i++) {
		finish_stream(&st->streams[i]);
		free(st->streams[i].epochs);
		free(st->streams[i].passes);
	}
	free(st->streams);
	free(st->drops);
	free(st->invalids);
	free(st->samples);
	free(st->hashes);
	free(st->arena_at);
	free(st->config.disks);
	clair_arena_free(st->arena);
	clair_pool_free(st->pool);
	pthread_cond_destroy(&st->work);
	pthread_cond_destroy(&st->quiet);
	pthread_cond_destroy(&st->served);
	pthread_mutex_destroy(&st->order);
	pthread_mutex_destroy(&st->turn);
	pthread_mutex_destroy(&st->lock);
	free(st);
}

/* --- streams ----------------------------------------------------------------------- */

static unsigned depth(const struct clair_catalog *c, uint32_t id)
{
	unsigned n = 0;

	for (; id; id = clair_catalog_entry(c, id)->parent)
		n++;
	return n;
}

/* Which stream owns which sample: the deepest folder's. order and lock held. */
static void share_samples(struct clair_stage *st)
{
	autofree unsigned *depths = calloc(st->count, sizeof *depths);

	for (uint32_t id = 0; id < st->count; id++)
		st->samples[id].stream = 0;
	st->homeless = 0;
	if (!depths)
		return;
	for (size_t i = 0; i < st->stream_count; i++) {
		struct stream *s = &st->streams[i];
		unsigned d = depth(st->catalog, s->folder) + 1;
		uint32_t n;
		const uint32_t *ids = clair_stream_samples(s->stream, &n);

		s->bytes = 0;
		for (uint32_t k = 0; k < n; k++) {
			if (clair_catalog_entry(st->catalog, ids[k])->kind != CLAIR_FILE ||
			    depths[ids[k]] >= d)
				continue;
			depths[ids[k]] = d;
			st->samples[ids[k]].stream = (uint8_t)(i + 1);
		}
	}
	for (uint32_t id = 0; id < st->count; id++) {
		if (!st->samples[id].stream)
			continue;
		st->streams[st->samples[id].stream - 1].bytes += sample_size(st, id);
		if (!stage_has_home(st, id))
			st->homeless += sample_size(st, id);
	}
}

/* The lanes of FRESH, each at the position where it begins. */
static int make_lanes(struct stream *s)
{
	size_t n;
	const uint32_t *ranks = clair_stream_ranks(s->stream, &n);

	if (!s->known)
		return 0;
	s->lanes = calloc(n, sizeof *s->lanes);
	if (!s->lanes)
		return -ENOMEM;
	s->lane_count = n;
	for (uint32_t l = 0; l < n; l++) {
		struct clair_position pos;
		struct lane *lane = &s->lanes[l];
		uint64_t next;

		clair_tracker_position(s->tracker, l, &pos);
		lane->pass = pos.pass;
		struct clair_epoch *now;
		int r = clair_stream_epoch(s->stream, pos.epoch, ranks[l], &now);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			continue;
		next = clair_tracker_next_epoch(s->tracker, l);
		lane->next_epoch = next < clair_stream_end_epoch(s->stream) ? next :
									      UINT64_MAX;
		lane->ended = lane->next_epoch == UINT64_MAX;
		lane_begin(lane, now, pos.low);
	}
	return 0;
}

/* A place for the stream of FOLDER: its old one, or a new one. order and lock held. */
static struct stream *place(struct clair_stage *st, uint32_t folder)
{
	for (size_t i = 0; i < st->stream_count; i++)
		if (st->streams[i].folder == folder)
			return &st->streams[i];
	if (st->stream_count == UINT8_MAX) /* a sample has a byte for it */
		return NULL;
	struct stream *all = realloc(st->streams, sizeof *all * (st->stream_count + 1));
	if (!all)
		return NULL;
	st->streams = all;
	memset(&all[st->stream_count], 0, sizeof *all);
	return &all[st->stream_count++];
}

int clair_stage_set_stream(struct clair_stage *st, struct clair_stream *stream)
{
	struct stream fresh = { .stream = stream, .folder = clair_stream_folder(stream),
				.known = clair_stream_known(stream) };

	autolock(&st->order);
	int r = clair_tracker_new(stream, &fresh.tracker);
	fresh.trusted = fresh.known && r == 0 && clair_tracker_trusted(fresh.tracker);
	if (r == 0)
		r = make_lanes(&fresh);
	if (r < 0) {
		finish_stream(&fresh);
		return r;
	}
	pthread_mutex_lock(&st->lock);
	struct stream *s = place(st, fresh.folder);
	struct stream old = { 0 };
	if (s) {
		for (size_t l = 0; l < s->lane_count; l++)
			lane_clear(st, &s->lanes[l]);
		old = *s;
		/* The counts of the folder's epochs go on. */
		fresh.epochs = old.epochs;
		fresh.passes = old.passes;
		fresh.epoch_count = old.epoch_count;
		fresh.epoch_room = old.epoch_room;
		*s = fresh;
		share_samples(st);
		for (size_t l = 0; l < s->lane_count; l++)
			lane_next(st, s, &s->lanes[l]);
		stage_kick(st);
	}
	pthread_mutex_unlock(&st->lock);
	finish_stream(s ? &old : &fresh);
	return s ? 0 : -ENOMEM;
}

int clair_stage_streams(struct clair_stage *st, struct clair_stream ***out, size_t *count)
{
	struct clair_stream **list = calloc(st->stream_count + 1, sizeof *list);

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < st->stream_count; i++) {
		unsigned d = depth(st->catalog, st->streams[i].folder);
		size_t at = i;
		for (; at > 0 && depth(st->catalog, clair_stream_folder(list[at - 1])) > d; at--)
			list[at] = list[at - 1];
		list[at] = st->streams[i].stream;
	}
	*out = list;
	*count = st->stream_count;
	return 0;
}

/* --- questions --------------------------------------------------------------------- */

void clair_stage_wait_decided(struct clair_stage *st, int timeout_ms)
{
	struct timespec deadline = clair_deadline(timeout_ms * CLAIR_NS_PER_MS);
	bool known = false;

	autolock(&st->lock);
	for (size_t i = 0; i < st->stream_count; i++)
		known = known || st->streams[i].known;
	while (known && st->keep == CLAIR_KEEP_AUTO && !st->stopping && !st->gone)
		if (pthread_cond_timedwait(&st->quiet, &st->lock, &deadline) == ETIMEDOUT)
			return;
}

int clair_stage_wait_full(struct clair_stage *st, int timeout_ms)
{
	struct timespec deadline = clair_deadline(timeout_ms * CLAIR_NS_PER_MS);
	int r = 0;

	autolock(&st->lock);
	while (r == 0 && !st->stopping &&
	       (!st->started || st->active || st->kicked || st->larges ||
		(st->starved && stage_drop_due(st) && !st->gone)))
		if (pthread_cond_timedwait(&st->quiet, &st->lock, &deadline) == ETIMEDOUT)
			r = -ETIMEDOUT;
	return r;
}

/* "peer:N" when another node keeps ID, else "pfs". */
static const char *where_else(struct clair_stage *st, uint32_t id)
{
	static __thread char text[16];
	uint16_t home = st->peers ? clair_peers_home(st->peers, id) : CLAIR_NO_NODE;

	if (home == CLAIR_NO_NODE || home == clair_peers_self(st->peers))
		return "pfs";
	snprintf(text, sizeof text, "peer:%u", home);
	return text;
}

const char *clair_stage_where(struct clair_stage *st, uint32_t id)
{
	if (id >= st->count)
		return "pfs";
	autolock(&st->lock);
	const struct sample *x = &st->samples[id];
	if (x->state == S_STAGED)
		return "staged";
	if (x->state == S_KEPT)
		return x->flags & F_USED ? "ram" : "staged";
	if (x->flags & F_ARENA)
		return "ram";
	return x->disk ? "ssd" : where_else(st, id);
}

void clair_stage_bound(struct clair_stage *st, uint64_t *capacity, uint64_t *dataset,
		       uint64_t *epochs)
{
	*dataset = *epochs = 0;
	*capacity = st->ram.limit;
	for (size_t i = 0; i < st->config.disk_count; i++) {
		struct clair_disk_usage usage;
		clair_disk_usage(st->config.disks[i], &usage);
		*capacity += usage.capacity;
	}
	autolock(&st->lock);
	for (size_t i = 0; i < st->stream_count; i++) {
		*dataset += st->streams[i].bytes;
		if (st->streams[i].epoch_count > *epochs)
			*epochs = st->streams[i].epoch_count;
	}
}
