/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <math.h>

#include "model.h"

#define MB 1e6

static void near(double got, double want)
{
	cr_assert(fabs(got - want) <= 1e-9 * fabs(want), "%.12g, not %.12g", got, want);
}

static void curve(struct clair_curve *c, const double *points, size_t count)
{
	*c = (struct clair_curve){ 0 };
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(clair_curve_set(c, points[2 * i], points[2 * i + 1]), 0);
}

/* The machine of SC'21, section 6.1. */
static struct clair_model paper(void)
{
	static const double pfs[] = { 4, 1540 * MB, 1, 330 * MB, 8, 2870 * MB, 2, 730 * MB };
	static const double staging[] = { 8, 111000 * MB }, ram[] = { 4, 85000 * MB };
	static const double cache[] = { 2, 4000 * MB };
	struct clair_model m = { .compute = 64 * MB, .preprocess = 200 * MB,
				 .link = 24000 * MB, .staging.threads = 8, .ram.threads = 4,
				 .cache.threads = 2 };

	curve(&m.pfs, pfs, 4);
	curve(&m.staging.write, staging, 1);
	curve(&m.ram.read, ram, 1);
	curve(&m.cache.read, cache, 1);
	return m;
}

Test(model, curves)
{
	struct clair_model m = paper();
	struct clair_curve none = { 0 };

	near(clair_curve_rate(&m.pfs, 1), 330 * MB);
	near(clair_curve_rate(&m.pfs, 0), 330 * MB);
	near(clair_curve_rate(&m.pfs, 2), 730 * MB);
	near(clair_curve_rate(&m.pfs, 1.5), 530 * MB);
	near(clair_curve_rate(&m.pfs, 3), 1135 * MB);
	near(clair_curve_rate(&m.pfs, 6), 2205 * MB);
	near(clair_curve_rate(&m.pfs, 8), 2870 * MB);
	near(clair_curve_rate(&m.pfs, 100), 2870 * MB);
	cr_assert_eq(clair_curve_rate(&none, 1), 0);
	cr_assert_eq(clair_curve_set(&none, 0, 1), -EINVAL);
	cr_assert_eq(clair_curve_set(&none, 1, -1), -EINVAL);
	cr_assert_eq(clair_curve_set(&none, 1, (double)NAN), -EINVAL);
	cr_assert_eq(clair_curve_set(&none, (double)INFINITY, 1), -EINVAL);
	for (unsigned i = CLAIR_CURVE_POINTS; i-- > 0;)
		cr_assert_eq(clair_curve_set(&none, i + 1, i + 5), 0);
	cr_assert_eq(clair_curve_set(&none, 100, 1), -ENOSPC);
	cr_assert_eq(clair_curve_set(&none, 3, 1000), 0);
	near(clair_curve_rate(&none, 3), 1000);
	near(clair_curve_rate(&none, 2.5), 503);
}

Test(model, times)
{
	struct clair_model m = paper();
	uint64_t s = 100000000;

	/* t(4)/4 = 385 MB/s */
	near(clair_model_fetch(&m, CLAIR_PLACE_PFS, s, 4), 100. / 385);
	near(clair_model_fetch(&m, CLAIR_PLACE_PFS, s, 0), 100. / 330);
	near(clair_model_fetch(&m, CLAIR_PLACE_PFS, s, 100), 100. / 28.7);
	/* r(p)/p: 21,250 and 2,000 MB/s; the link gives 24,000 */
	near(clair_model_fetch(&m, CLAIR_PLACE_RAM, s, 4), 100. / 21250);
	near(clair_model_fetch(&m, CLAIR_PLACE_CACHE, s, 4), 100. / 2000);
	near(clair_model_fetch(&m, CLAIR_PLACE_PEER_RAM, s, 4), 100. / 21250);
	near(clair_model_fetch(&m, CLAIR_PLACE_PEER_CACHE, s, 4), 100. / 2000);
	m.link = 1000 * MB;
	m.pfs_link = 300 * MB;
	near(clair_model_fetch(&m, CLAIR_PLACE_PEER_RAM, s, 4), 0.1);
	near(clair_model_fetch(&m, CLAIR_PLACE_PEER_CACHE, s, 4), 0.1);
	near(clair_model_fetch(&m, CLAIR_PLACE_PFS, s, 1), 1. / 3);
	/* preprocessing 0.5 s, the staging buffer takes 13,875 MB/s of each thread */
	near(clair_model_write(&m, s), 0.5);
	m.preprocess = 0;
	near(clair_model_write(&m, s), 100. / 13875);
	near(clair_model_consume(&m, s), 100. / 64);
	m = (struct clair_model){ 0 };
	cr_assert_eq(clair_model_fetch(&m, CLAIR_PLACE_PFS, s, 1), HUGE_VAL);
	cr_assert_eq(clair_model_write(&m, s), 0);
	cr_assert_eq(clair_model_consume(&m, s), 0);
	m.link = 1000 * MB;
	near(clair_model_fetch(&m, CLAIR_PLACE_PEER_RAM, s, 4), 0.1);
}

static unsigned bits(enum clair_place a, enum clair_place b)
{
	return 1u << a | 1u << b;
}

Test(model, choice)
{
	struct clair_model m = paper();
	const unsigned all = (1u << CLAIR_PLACES) - 1;
	uint64_t s = 1000;

	cr_assert_eq(clair_model_choose(&m, all, s, 4), CLAIR_PLACE_RAM);
	cr_assert_eq(clair_model_choose(&m, 0, s, 4), CLAIR_PLACES);
	/* the same time: local first */
	cr_assert_eq(clair_model_choose(&m, bits(CLAIR_PLACE_CACHE, CLAIR_PLACE_PEER_CACHE), s,
					4),
		     CLAIR_PLACE_CACHE);
	/* another's memory is faster than our own disk */
	cr_assert_eq(clair_model_choose(&m, bits(CLAIR_PLACE_CACHE, CLAIR_PLACE_PEER_RAM), s, 4),
		     CLAIR_PLACE_PEER_RAM);
	m.link = 300 * MB;
	cr_assert_eq(clair_model_choose(&m, bits(CLAIR_PLACE_CACHE, CLAIR_PLACE_PEER_RAM), s, 4),
		     CLAIR_PLACE_CACHE);
	/* few on the PFS: better than that link; many: worse */
	cr_assert_eq(clair_model_choose(&m, bits(CLAIR_PLACE_PFS, CLAIR_PLACE_PEER_RAM), s, 4),
		     CLAIR_PLACE_PFS);
	cr_assert_eq(clair_model_choose(&m, bits(CLAIR_PLACE_PFS, CLAIR_PLACE_PEER_RAM), s, 16),
		     CLAIR_PLACE_PEER_RAM);
	/* nothing known of any: the order of the list; of one: that one */
	m = (struct clair_model){ 0 };
	cr_assert_eq(clair_model_choose(&m, all & ~1u, s, 4), CLAIR_PLACE_CACHE);
	m.pfs_link = 1;
	cr_assert_eq(clair_model_choose(&m, all, s, 4), CLAIR_PLACE_PFS);
	for (unsigned i = 0; i <= CLAIR_PLACES; i++)
		cr_assert_not_null(clair_place_name((enum clair_place)i));
}

Test(model, measured)
{
	const double half = CLAIR_MODEL_MEMORY * log(2); /* seconds that move half of the way */
	struct clair_model m = paper();

	/* 4 clients get 185 MB/s each: 740 in all, where 1540 was thought */
	clair_model_observe(&m, CLAIR_PLACE_PFS, (uint64_t)llround(half * 185e6), half, 4);
	cr_assert_float_eq(clair_curve_rate(&m.pfs, 4), 1140e6, 10);
	cr_assert_eq(m.pfs.count, 4);
	/* in a hundred pieces it is the same */
	struct clair_model n = paper();
	for (int i = 0; i < 100; i++)
		clair_model_observe(&n, CLAIR_PLACE_PFS, (uint64_t)llround(half * 185e4),
				    half / 100, 4);
	cr_assert_float_eq(clair_curve_rate(&n.pfs, 4), 1140e6, 2000);
	/* between the points: a new one, beginning at 1135 of the line */
	n = paper();
	clair_model_observe(&n, CLAIR_PLACE_PFS, (uint64_t)llround(half * 1e9 / 3), half, 3);
	cr_assert_eq(n.pfs.count, 5);
	cr_assert_float_eq(clair_curve_rate(&n.pfs, 3), 1067.5e6, 100);

	/* the link is the narrowest: it is learnt, the class is not touched */
	m.link = 1000 * MB;
	clair_model_observe(&m, CLAIR_PLACE_PEER_RAM, (uint64_t)llround(half * 500e6), half, 1);
	cr_assert_float_eq(m.link, 750e6, 10);
	near(clair_curve_rate(&m.ram.read, 4), 85000 * MB);
	/* the class is */
	clair_model_observe(&m, CLAIR_PLACE_CACHE, (uint64_t)llround(half * 1000e6), half, 1);
	cr_assert_float_eq(clair_curve_rate(&m.cache.read, 2), 3000e6, 10);
	m.link = 1e12;
	clair_model_observe(&m, CLAIR_PLACE_PEER_CACHE, (uint64_t)llround(half * 500e6), half, 1);
	cr_assert_float_eq(clair_curve_rate(&m.cache.read, 2), 2000e6, 10);
	cr_assert_eq(m.link, 1e12);

	/* from nothing */
	m = (struct clair_model){ 0 };
	clair_model_observe(&m, CLAIR_PLACE_PEER_RAM, 1000, 0.5, 1);
	near(m.link, 2000);
	cr_assert_eq(m.ram.read.count, 0);
	clair_model_observe(&m, CLAIR_PLACE_RAM, 1000, 0.1, 1);
	near(clair_model_fetch(&m, CLAIR_PLACE_RAM, 500, 1), 0.05);
	clair_model_observe(&m, CLAIR_PLACE_PFS, 100, 1, 2);
	near(clair_model_fetch(&m, CLAIR_PLACE_PFS, 100, 2), 1);
	/* no sense */
	struct clair_model before = m;
	clair_model_observe(&m, CLAIR_PLACE_RAM, 0, 1, 1);
	clair_model_observe(&m, CLAIR_PLACE_RAM, 1, 0, 1);
	clair_model_observe(&m, CLAIR_PLACE_RAM, 1, (double)NAN, 1);
	clair_model_observe(&m, CLAIR_PLACES, 1, 1, 1);
	cr_assert_arr_eq(&m, &before, sizeof m);
	/* more clients than points: the nearest moves */
	for (int i = 1; i <= 40; i++)
		clair_model_observe(&m, CLAIR_PLACE_PFS, 100, 1, i);
	cr_assert_eq(m.pfs.count, CLAIR_CURVE_POINTS);
	cr_assert_gt(clair_curve_rate(&m.pfs, 40), clair_curve_rate(&m.pfs, 15));
}
