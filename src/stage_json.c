/* SPDX-License-Identifier: BSD-3-Clause */
#include "stage_internal.h"

#include <errno.h>
#include <stdlib.h>

static json_t *order_json(struct stream *s)
{
	const struct clair_words *words = clair_stream_words(s->stream);
	const char *seed = clair_words_get(words, "seed");
	const char *how = clair_words_get(words, "how");
	size_t n;
	const uint32_t *ranks = clair_stream_ranks(s->stream, &n);
	struct clair_position pos = { .epoch = clair_stream_first_epoch(s->stream) };
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, json_integer(ranks[i]));
	if (s->known)
		clair_tracker_position(s->tracker, 0, &pos);
	json_t *o = json_pack("{s:s, s:s, s:s, s:I, s:o, s:I, s:b, s:b}", "how",
			      !s->known ? "unknown" : how ? how : "given", "sampler",
			      clair_stream_sampler(s->stream), "index",
			      clair_stream_index(s->stream), "world",
			      (json_int_t)clair_stream_world(s->stream), "ranks", list,
			      "epoch", (json_int_t)pos.epoch, "known", s->known, "trusted",
			      s->trusted);
	const char *opens = clair_words_get(words, "opens_to_find");
	const char *seconds = clair_words_get(words, "seconds_to_find");
	if (o && opens && seconds) {
		json_object_set_new(o, "opens_to_find", json_integer(atoll(opens)));
		json_object_set_new(o, "seconds_to_find", json_real(atof(seconds)));
	}
	if (o && seed) {
		char *end;
		long long value = strtoll(seed, &end, 0);
		json_object_set_new(o, "seed", *end ? json_string(seed) :
						      json_integer(value));
	}
	return o;
}

static json_t *stream_json(struct clair_stage *st, struct stream *s)
{
	char path[4096];
	json_t *epochs = json_array();

	clair_catalog_path(st->catalog, s->folder, path, sizeof path);
	/* Names that are not UTF-8 cannot be said in JSON. */
	json_t *name = json_string(path);
	if (!name)
		name = json_string("?");
	pthread_mutex_lock(&st->lock);
	uint64_t now = atomic_load(&st->config.stats->pfs.bytes);
	for (size_t i = 0; i < s->epoch_count; i++)
		json_array_append_new(epochs, clair_epoch_stats_json(
						      &s->epochs[i],
						      i + 1 < s->epoch_count ?
							      s->epochs[i + 1].pfs_at :
							      now));
	pthread_mutex_unlock(&st->lock);
	return json_pack("{s:o, s:o, s:o}", "path", name, "order", order_json(s), "epochs",
			 epochs);
}

static json_t *budget_json(const struct budget *b)
{
	return json_pack("{s:I, s:I, s:I}", "used", (json_int_t)b->bytes, "budget",
			 (json_int_t)b->limit, "samples", (json_int_t)b->samples);
}

static json_t *caches_json(struct clair_stage *st)
{
	json_t *list = json_array();

	for (size_t i = 0; i < st->config.disk_count; i++) {
		struct clair_disk_usage u;
		clair_disk_usage(st->config.disks[i], &u);
		json_array_append_new(
			list, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b}", "path",
					clair_disk_path(st->config.disks[i]), "used",
					(json_int_t)u.bytes, "budget", (json_int_t)u.capacity,
					"samples", (json_int_t)u.samples, "errors",
					(json_int_t)u.errors, "damaged",
					(json_int_t)u.damaged, "full", u.full));
	}
	return list;
}

/* What the model has measured, MB/s; 0: nothing yet. lock */
static json_t *bandwidth_json(struct clair_stage *st)
{
	const struct clair_model *m = &st->model;
	double clients = st->peers ? clair_peers_loading(st->peers) : 1;

	return json_pack("{s:f, s:f, s:f}", "pfs_mb_s",
			 clair_curve_rate(&m->pfs, clients) / 1e6, "cache_mb_s",
			 clair_curve_rate(&m->cache.read, 1) / 1e6, "pfs_clients", clients);
}

int clair_stage_json(struct clair_stage *st, json_t *object)
{
	static const char *const keeps[] = { [CLAIR_KEEP_AUTO] = "auto",
					     [CLAIR_KEEP_KERNEL] = "kernel",
					     [CLAIR_KEEP_ARENA] = "arena" };
	json_t *streams = json_array();

	pthread_mutex_lock(&st->order);
	for (size_t i = 0; i < st->stream_count; i++)
		json_array_append_new(streams, stream_json(st, &st->streams[i]));
	pthread_mutex_unlock(&st->order);
	int r = json_object_set_new(object, "streams", streams);
	r |= json_object_set_new(object, "cache", caches_json(st));
	autolock(&st->lock);
	r |= json_object_set_new(object, "keep", json_string(keeps[st->keep]));
	r |= json_object_set_new(object, "staging", budget_json(&st->staging));
	r |= json_object_set_new(object, "ram", budget_json(&st->ram));
	r |= json_object_set_new(object, "loads", json_integer(st->limit));
	r |= json_object_set_new(object, "bandwidth", bandwidth_json(st));
	return r ? -ENOMEM : 0;
}
