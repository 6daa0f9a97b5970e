/* SPDX-License-Identifier: BSD-3-Clause */
#include "stats.h"

#include <errno.h>

const char *const clair_fuse_request_names[CLAIR_FUSE_REQUESTS] = {
	[CLAIR_FUSE_LOOKUP] = "lookup",	      [CLAIR_FUSE_FORGET] = "forget",
	[CLAIR_FUSE_GETATTR] = "getattr",     [CLAIR_FUSE_SETATTR] = "setattr",
	[CLAIR_FUSE_READLINK] = "readlink",   [CLAIR_FUSE_OPEN] = "open",
	[CLAIR_FUSE_READ] = "read",	      [CLAIR_FUSE_FLUSH] = "flush",
	[CLAIR_FUSE_RELEASE] = "release",     [CLAIR_FUSE_OPENDIR] = "opendir",
	[CLAIR_FUSE_READDIR] = "readdir",     [CLAIR_FUSE_STATFS] = "statfs",
	[CLAIR_FUSE_GETXATTR] = "getxattr",   [CLAIR_FUSE_LISTXATTR] = "listxattr",
	[CLAIR_FUSE_SETXATTR] = "setxattr",   [CLAIR_FUSE_ACCESS] = "access",
	[CLAIR_FUSE_OTHER] = "other",
};

static json_t *counter_json(const struct clair_counter *c)
{
	return json_pack("{s:I, s:I}", "samples", (json_int_t)atomic_load(&c->samples),
			 "bytes", (json_int_t)atomic_load(&c->bytes));
}

static json_t *requests_json(const _Atomic uint64_t *counts)
{
	json_t *object = json_object();

	for (int i = 0; object && i < CLAIR_FUSE_REQUESTS; i++)
		if (json_object_set_new(object, clair_fuse_request_names[i],
					json_integer((json_int_t)atomic_load(&counts[i]))))
			break;
	return object;
}

int clair_stats_json(const struct clair_stats *s, json_t *object)
{
	json_t *rest = json_pack(
		"{s:{s:o, s:o, s:o, s:o}, s:{s:I, s:I, s:I}, s:o, s:o, s:{s:I, s:I, s:I, s:I},"
		" s:{s:I, s:I, s:I}}",
		"reads", "pfs", counter_json(&s->pfs), "ram", counter_json(&s->ram), "cache",
		counter_json(&s->cache), "peer", counter_json(&s->peer), "pfs", "opens",
		(json_int_t)atomic_load(&s->pfs_opens), "walks",
		(json_int_t)atomic_load(&s->pfs_walks), "errors",
		(json_int_t)atomic_load(&s->pfs_errors), "fuse", requests_json(s->fuse),
		"own_requests", requests_json(s->own), "errors", "hash",
		(json_int_t)atomic_load(&s->error_hash), "cache",
		(json_int_t)atomic_load(&s->error_cache), "peer",
		(json_int_t)atomic_load(&s->error_peer), "reader",
		(json_int_t)atomic_load(&s->error_reader), "lost", "samples",
		(json_int_t)atomic_load(&s->lost_samples), "pages",
		(json_int_t)atomic_load(&s->lost_pages), "overflows",
		(json_int_t)atomic_load(&s->overflows));

	if (!rest)
		return -ENOMEM;
	int r = json_object_update(object, rest) ? -ENOMEM : 0;
	json_decref(rest);
	return r;
}

json_t *clair_epoch_stats_json(const struct clair_epoch_stats *e, uint64_t pfs_end)
{
	return json_pack("{s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "epoch",
			 (json_int_t)e->epoch, "opens", (json_int_t)e->opens, "bytes",
			 (json_int_t)e->bytes, "seconds",
			 (double)(e->end_ns - e->begin_ns) / 1e9, "stall_s",
			 (double)e->stall_ns / 1e9, "staged", (json_int_t)e->staged, "late",
			 (json_int_t)e->late, "missed", (json_int_t)e->missed,
			 "unpredicted", (json_int_t)e->unpredicted, "pfs_bytes",
			 (json_int_t)(pfs_end > e->pfs_at ? pfs_end - e->pfs_at : 0));
}

uint64_t clair_pfs_bound(uint64_t dataset, uint64_t capacity, uint64_t epochs)
{
	uint64_t rest = dataset > capacity ? dataset - capacity : 0;

	return epochs ? dataset + (epochs - 1) * rest : 0;
}
