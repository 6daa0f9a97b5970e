/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <string.h>

#include "stats.h"

static json_int_t number(const json_t *o, const char *a, const char *b, const char *c)
{
	o = json_object_get(o, a);
	o = b ? json_object_get(o, b) : o;
	o = c ? json_object_get(o, c) : o;
	cr_assert(json_is_integer(o), "%s %s %s", a, b ? b : "", c ? c : "");
	return json_integer_value(o);
}

/* Every counter comes out under its own name. */
Test(stats, each_counter_has_its_place)
{
	struct clair_stats s = { 0 };
	json_t *o = json_object();

	clair_count(&s.pfs.samples, 1);
	clair_count(&s.pfs.bytes, 2);
	clair_count(&s.ram.samples, 3);
	clair_count(&s.ram.bytes, 4);
	clair_count(&s.cache.samples, 5);
	clair_count(&s.cache.bytes, 6);
	clair_count(&s.peer.samples, 7);
	clair_count(&s.peer.bytes, 8);
	clair_count(&s.pfs_opens, 9);
	clair_count(&s.pfs_walks, 10);
	clair_count(&s.pfs_errors, 11);
	clair_count(&s.error_hash, 12);
	clair_count(&s.error_cache, 13);
	clair_count(&s.error_peer, 14);
	clair_count(&s.error_reader, 15);
	clair_count(&s.lost_samples, 16);
	clair_count(&s.lost_pages, 17);
	clair_count(&s.overflows, 18);
	for (unsigned i = 0; i < CLAIR_FUSE_REQUESTS; i++) {
		clair_count(&s.fuse[i], 100 + i);
		clair_count(&s.own[i], 200 + i);
	}
	cr_assert_eq(clair_stats_json(&s, o), 0);
	cr_expect_eq(number(o, "reads", "pfs", "samples"), 1);
	cr_expect_eq(number(o, "reads", "pfs", "bytes"), 2);
	cr_expect_eq(number(o, "reads", "ram", "samples"), 3);
	cr_expect_eq(number(o, "reads", "ram", "bytes"), 4);
	cr_expect_eq(number(o, "reads", "cache", "samples"), 5);
	cr_expect_eq(number(o, "reads", "cache", "bytes"), 6);
	cr_expect_eq(number(o, "reads", "peer", "samples"), 7);
	cr_expect_eq(number(o, "reads", "peer", "bytes"), 8);
	cr_expect_eq(number(o, "pfs", "opens", NULL), 9);
	cr_expect_eq(number(o, "pfs", "walks", NULL), 10);
	cr_expect_eq(number(o, "pfs", "errors", NULL), 11);
	cr_expect_eq(number(o, "errors", "hash", NULL), 12);
	cr_expect_eq(number(o, "errors", "cache", NULL), 13);
	cr_expect_eq(number(o, "errors", "peer", NULL), 14);
	cr_expect_eq(number(o, "errors", "reader", NULL), 15);
	cr_expect_eq(number(o, "lost", "samples", NULL), 16);
	cr_expect_eq(number(o, "lost", "pages", NULL), 17);
	cr_expect_eq(number(o, "lost", "overflows", NULL), 18);
	for (unsigned i = 0; i < CLAIR_FUSE_REQUESTS; i++) {
		cr_assert(clair_fuse_request_names[i]);
		cr_expect_eq(number(o, "fuse", clair_fuse_request_names[i], NULL), 100 + i);
		cr_expect_eq(number(o, "own_requests", clair_fuse_request_names[i], NULL),
			     200 + i);
	}
	json_decref(o);
}

Test(stats, what_was_there_stays)
{
	struct clair_stats s = { 0 };
	json_t *o = json_pack("{s:s}", "version", "1");

	cr_assert_eq(clair_stats_json(&s, o), 0);
	cr_expect_str_eq(json_string_value(json_object_get(o, "version")), "1");
	json_decref(o);
}

Test(stats, an_epoch)
{
	struct clair_epoch_stats e = { .epoch = 1, .opens = 2, .bytes = 3, .staged = 4,
				       .late = 5, .missed = 6, .unpredicted = 7,
				       .begin_ns = 1000000000, .end_ns = 3500000000,
				       .stall_ns = 250000000 };
	e.pfs_at = 400;
	json_t *o = clair_epoch_stats_json(&e, 1000);

	cr_expect_eq(json_integer_value(json_object_get(o, "pfs_bytes")), 600);

	cr_assert(o);
	cr_expect_eq(number(o, "epoch", NULL, NULL), 1);
	cr_expect_eq(number(o, "opens", NULL, NULL), 2);
	cr_expect_eq(number(o, "bytes", NULL, NULL), 3);
	cr_expect_eq(number(o, "staged", NULL, NULL), 4);
	cr_expect_eq(number(o, "late", NULL, NULL), 5);
	cr_expect_eq(number(o, "missed", NULL, NULL), 6);
	cr_expect_eq(number(o, "unpredicted", NULL, NULL), 7);
	cr_expect_float_eq(json_real_value(json_object_get(o, "seconds")), 2.5, 1e-9);
	cr_expect_float_eq(json_real_value(json_object_get(o, "stall_s")), 0.25, 1e-9);
	json_decref(o);
}

Test(stats, the_bound)
{
	cr_expect_eq(clair_pfs_bound(100, 0, 0), 0);
	cr_expect_eq(clair_pfs_bound(100, 0, 1), 100);
	cr_expect_eq(clair_pfs_bound(100, 0, 5), 500);
	cr_expect_eq(clair_pfs_bound(100, 40, 5), 100 + 4 * 60);
	cr_expect_eq(clair_pfs_bound(100, 100, 5), 100);
	cr_expect_eq(clair_pfs_bound(100, UINT64_MAX, 5), 100);
}
