/* SPDX-License-Identifier: BSD-3-Clause */
/* Samples that a directory tier takes in pieces. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "disk.h"

#define PIECE CLAIR_DISK_PIECE
#define BIG (2ull * PIECE + 12345) /* 3 pieces */
#define TABLE (3 * 8)
#define WIDE (261ull << 20) /* more than a segment */

static char top[64], tier[96];
static struct clair_catalog *catalog;
static uint32_t big, other, wide;
static unsigned char bytes[BIG], got[BIG];

static void make_file(const char *name, uint64_t size)
{
	char path[160];

	snprintf(path, sizeof path, "%s/source/%s", top, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

static void begin(void)
{
	char path[160];

	strcpy(top, "/tmp/clairfs-pieces-XXXXXX");
	cr_assert(mkdtemp(top));
	snprintf(tier, sizeof tier, "%s/tier", top);
	snprintf(path, sizeof path, "%s/source", top);
	cr_assert_eq(mkdir(path, 0755), 0);
	make_file("big", BIG);
	make_file("other", BIG);
	make_file("wide", WIDE);
	make_file("empty", 0);
	int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(clair_catalog_walk(root, 1, NULL, NULL, &catalog), 0);
	close(root);
	big = clair_catalog_find(catalog, "big");
	other = clair_catalog_find(catalog, "other");
	wide = clair_catalog_find(catalog, "wide");
	for (uint64_t i = 0; i < BIG; i++)
		bytes[i] = (unsigned char)((i * 2654435761u) >> 29);
}

static void end(void)
{
	char command[128];

	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(disk_pieces, .init = begin, .fini = end, .timeout = 60);

static struct clair_disk *open_tier(uint64_t cap)
{
	struct clair_disk_config config = { .path = tier, .bytes = cap };
	struct clair_disk *d = NULL;
	char *error = NULL;

	cr_assert_eq(clair_disk_open(&config, catalog, &d, &error), 0, "%s", error);
	return d;
}

static size_t size_of(uint32_t piece)
{
	return piece < 2 ? PIECE : BIG - 2 * PIECE;
}

static int put(struct clair_disk_writer *w, uint32_t piece)
{
	const unsigned char *p = bytes + (uint64_t)piece * PIECE;

	return clair_disk_write(w, piece, p, size_of(piece), XXH3_64bits(p, size_of(piece)));
}

/* The last piece first. */
static int add(struct clair_disk *d, uint32_t id)
{
	struct clair_disk_writer *w;
	int r = clair_disk_begin(d, id, &w);

	for (uint32_t i = 3; r == 0 && i-- > 0;) {
		cr_expect_not(clair_disk_has(d, id));
		r = put(w, i);
		if (r < 0)
			clair_disk_abort(w);
	}
	return r < 0 ? r : clair_disk_commit(w);
}

static bool is_right(struct clair_disk *d, uint32_t id)
{
	memset(got, 0, sizeof got);
	return clair_disk_read(d, id, got, NULL) == 0 && !memcmp(got, bytes, BIG);
}

static uint64_t file_size(const char *name)
{
	char path[160];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", tier, name);
	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static int open_file(const char *name)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", tier, name);
	int fd = open(path, O_RDWR);
	cr_assert(fd >= 0);
	return fd;
}

static void flip(uint64_t at)
{
	int fd = open_file("segment-000000");
	char byte;

	cr_assert_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x40;
	cr_assert_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

static void verify(uint64_t samples, uint64_t damaged)
{
	struct clair_disk_check found;
	char *error = NULL;
	FILE *report = fopen("/dev/null", "w");

	cr_assert_eq(clair_disk_verify(tier, false, report, &found, &error), 0, "%s", error);
	fclose(report);
	cr_expect_eq(found.samples, samples);
	cr_expect_eq(found.damaged, damaged);
}

Test(disk_pieces, out_of_order)
{
	struct clair_disk *d = open_tier(1 << 30);
	struct clair_disk_usage u;

	cr_assert_eq(add(d, big), 0);
	cr_expect_eq(add(d, big), -EEXIST);
	cr_assert_eq(add(d, other), 0);
	for (int mount = 0; mount < 2; mount++) {
		cr_expect(is_right(d, big));
		cr_expect(is_right(d, other));
		/* Across pieces, and a part of one. */
		cr_expect_eq(clair_disk_pread(d, big, got, 1000, PIECE - 500), 0);
		cr_expect_eq(memcmp(got, bytes + PIECE - 500, 1000), 0);
		cr_expect_eq(clair_disk_pread(d, big, got, 1, BIG - 1), 0);
		cr_expect_eq(got[0], bytes[BIG - 1]);
		cr_expect_eq(clair_disk_pread(d, big, got, 2, BIG - 1), -EINVAL);
		clair_disk_usage(d, &u);
		cr_expect_eq(u.samples, 2);
		cr_expect_eq(u.bytes, 2 * BIG);
		cr_expect_eq(u.errors + u.damaged, 0);
		clair_disk_close(d);
		verify(2, 0);
		d = open_tier(1 << 30);
	}
	clair_disk_forget(d, big);
	clair_disk_close(d);
	d = open_tier(1 << 30);
	cr_expect_not(clair_disk_has(d, big));
	cr_expect(is_right(d, other));
	clair_disk_close(d);
}

Test(disk_pieces, not_whole_is_not_there)
{
	struct clair_disk *d = open_tier(3 * BIG);
	struct clair_disk_writer *w;

	/* Again and again: the room comes back. */
	for (int i = 0; i < 20; i++) {
		cr_assert_eq(clair_disk_begin(d, big, &w), 0);
		cr_expect_eq(put(w, 1), 0);
		if (i % 2)
			clair_disk_abort(w);
		else
			cr_expect_eq(clair_disk_commit(w), -EINVAL);
		cr_expect_not(clair_disk_has(d, big));
		cr_expect_eq(file_size("segment-000000"), 0);
		cr_expect_eq(file_size("index"), 0);
		if (i % 4 == 3) { /* it gives up after some errors in a row */
			clair_disk_close(d);
			d = open_tier(3 * BIG);
		}
	}
	clair_disk_abort(NULL);
	uint32_t none = clair_catalog_find(catalog, "empty");
	cr_expect_eq(clair_disk_begin(d, none, &w), -EINVAL);
	cr_expect_eq(add(d, big), 0);
	cr_expect(is_right(d, big));
	clair_disk_close(d);
}

/* Two at once: the second one ends as if it had not been. */
Test(disk_pieces, two_at_once)
{
	struct clair_disk *d = open_tier(1 << 30);
	struct clair_disk_writer *w[2];

	cr_assert_eq(clair_disk_begin(d, big, &w[0]), 0);
	cr_assert_eq(clair_disk_begin(d, big, &w[1]), 0);
	for (uint32_t i = 0; i < 3; i++) {
		cr_expect_eq(put(w[1], i), 0);
		cr_expect_eq(put(w[0], 2 - i), 0);
	}
	cr_expect_eq(clair_disk_commit(w[1]), 0);
	cr_expect_eq(clair_disk_commit(w[0]), -EEXIST);
	cr_expect(is_right(d, big));
	clair_disk_close(d);
	verify(1, 0);
}

/* A mount that dies leaves any beginning of a segment, and no record. */
Test(disk_pieces, a_crash_while_it_is_written)
{
	struct clair_disk *d = open_tier(1 << 30);
	struct clair_disk_writer *w;

	cr_assert_eq(add(d, other), 0);
	uint64_t first = file_size("segment-000000");
	cr_assert_eq(clair_disk_begin(d, big, &w), 0);
	cr_expect_eq(put(w, 0), 0);
	cr_expect_eq(put(w, 2), 0);
	cr_expect_gt(file_size("segment-000000"), first + BIG - PIECE);
	/* A process that is killed does not abort: this is what it would leave. */
	char command[300];
	snprintf(command, sizeof command, "cp -a '%s' '%s.dead'", tier, tier);
	cr_assert_eq(system(command), 0);
	clair_disk_abort(w);
	clair_disk_close(d);
	strcat(tier, ".dead");
	d = open_tier(1 << 30);
	cr_expect_not(clair_disk_has(d, big));
	cr_expect(is_right(d, other));
	cr_expect_eq(file_size("segment-000000"), first, "lost room is not given back");
	cr_expect_eq(add(d, big), 0);
	cr_expect(is_right(d, big));
	clair_disk_close(d);
}

/* The log or the segment cut anywhere: told, never wrong, and it can be added again. */
Test(disk_pieces, cut)
{
	struct clair_disk *d = open_tier(1 << 30);

	cr_assert_eq(add(d, big), 0);
	clair_disk_close(d);
	uint64_t sizes[2] = { file_size("index"), file_size("segment-000000") };
	cr_assert_eq(sizes[1], BIG + TABLE);
	for (int i = 0; i < 40; i++) {
		bool log = i % 2;
		uint64_t at = i < 2 * TABLE && !log ? sizes[1] - 1 - (unsigned)i :
						      sizes[!log] * (unsigned)i / 40;
		int fd = open_file(log ? "index" : "segment-000000");
		cr_assert_eq(ftruncate(fd, (off_t)at), 0);
		close(fd);
		d = open_tier(1 << 30);
		cr_expect_not(clair_disk_has(d, big) && !is_right(d, big) &&
				      clair_disk_read(d, big, got, NULL) == 0,
			      "wrong bytes, cut at %lu", at);
		if (!clair_disk_has(d, big))
			cr_assert_eq(add(d, big), 0);
		cr_expect(is_right(d, big), "cut at %lu", at);
		clair_disk_close(d);
		/* Begin again from one record. */
		fd = open_file("index");
		cr_assert_eq(ftruncate(fd, 0), 0);
		close(fd);
		d = open_tier(1 << 30);
		cr_assert_eq(add(d, big), 0);
		clair_disk_close(d);
	}
}

Test(disk_pieces, damage_is_found_and_mended)
{
	struct clair_disk *d = open_tier(1 << 30);

	cr_assert_eq(add(d, big), 0);
	clair_disk_close(d);
	flip(PIECE + 77);
	verify(1, 1);
	d = open_tier(1 << 30);
	/* Other pieces are good, and only what is asked for is read. */
	cr_expect_eq(clair_disk_pread(d, big, got, PIECE, 0), 0);
	cr_expect_eq(clair_disk_pread(d, big, got, 100, 2 * PIECE), 0);
	cr_expect_eq(clair_disk_pread(d, big, got, 100, PIECE + 1000), -EBADMSG);
	cr_expect_eq(clair_disk_pread(d, big, got, PIECE, PIECE), -EBADMSG);
	cr_expect_not(is_right(d, big));
	cr_expect(clair_disk_has(d, big));
	cr_expect_eq(clair_disk_mend(d, big, 3, bytes), -ENOENT);
	cr_expect_eq(clair_disk_mend(d, other, 0, bytes), -ENOENT);
	cr_expect_eq(clair_disk_mend(d, big, 1, bytes + PIECE), 0);
	cr_expect(is_right(d, big));
	clair_disk_close(d);
	verify(1, 0);
	d = open_tier(1 << 30);
	cr_expect_eq(clair_disk_mend(d, big, 1, bytes), -EBADMSG, "bytes of another piece");
	cr_expect_not(clair_disk_has(d, big));
	clair_disk_close(d);
}

Test(disk_pieces, a_damaged_table)
{
	struct clair_disk *d = open_tier(1 << 30);

	cr_assert_eq(add(d, big), 0);
	clair_disk_close(d);
	flip(BIG + 9);
	verify(1, 1);
	d = open_tier(1 << 30);
	cr_expect_eq(clair_disk_pread(d, big, got, 10, 0), -EBADMSG);
	cr_expect_not(clair_disk_has(d, big));
	cr_expect_eq(add(d, big), 0);
	cr_expect(is_right(d, big));
	clair_disk_close(d);
}

/* The disk is full in the middle of a file. */
Test(disk_pieces, no_room_for_the_rest)
{
	struct rlimit limit = { BIG + PIECE, RLIM_INFINITY };
	struct clair_disk *d = open_tier(1 << 30);
	struct clair_disk_usage u;

	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(add(d, big), 0);
	uint64_t before = file_size("segment-000000");
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_expect_eq(add(d, other), -EFBIG);
	struct clair_disk_writer *w;
	cr_assert_eq(clair_disk_begin(d, other, &w), 0);
	cr_expect_eq(put(w, 0), -EFBIG);
	cr_expect_eq(clair_disk_commit(w), -EFBIG, "a piece is not there");
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	cr_expect_eq(file_size("segment-000000"), before);
	cr_expect_not(clair_disk_has(d, other));
	clair_disk_usage(d, &u);
	cr_expect_eq(u.errors, 2);
	cr_expect_eq(add(d, other), 0);
	cr_expect(is_right(d, big) && is_right(d, other));
	clair_disk_close(d);
}

Test(disk_pieces, the_cap_holds)
{
	struct clair_disk *d = open_tier(BIG + TABLE + 100);
	struct clair_disk_writer *w;

	cr_expect_eq(clair_disk_begin(d, big, &w), -ENOSPC);
	clair_disk_close(d);
	d = open_tier(BIG + TABLE + 112);
	cr_expect_eq(clair_disk_begin(d, big, &w), 0);
	struct clair_disk_writer *second;
	cr_expect_eq(clair_disk_begin(d, other, &second), -ENOSPC);
	clair_disk_abort(w);
	cr_expect_eq(add(d, big), 0);
	cr_expect_eq(clair_disk_begin(d, other, &second), -ENOSPC);
	cr_expect_leq(file_size("index") + file_size("segment-000000"), BIG + TABLE + 112);
	clair_disk_close(d);
}

/* Larger than a segment: one of its own; later samples go to the next. */
Test(disk_pieces, wider_than_a_segment)
{
	struct clair_disk *d = open_tier(1 << 30);
	struct clair_disk_writer *w;
	uint32_t pieces = (uint32_t)((WIDE + PIECE - 1) / PIECE);

	cr_assert_eq(add(d, big), 0);
	cr_assert_eq(clair_disk_begin(d, wide, &w), 0);
	for (uint32_t i = 0; i < pieces; i++) {
		size_t size = i + 1 < pieces ? PIECE : WIDE - (uint64_t)i * PIECE;
		bytes[0] = (unsigned char)i;
		cr_assert_eq(clair_disk_write(w, i, bytes, size, XXH3_64bits(bytes, size)), 0);
	}
	cr_assert_eq(clair_disk_commit(w), 0);
	bytes[0] = 0;
	cr_assert_eq(add(d, other), 0);
	cr_expect_geq(file_size("segment-000001"), WIDE);
	cr_expect_eq(file_size("segment-000002"), BIG + TABLE);
	clair_disk_close(d);
	d = open_tier(1 << 30);
	for (uint32_t i = 0; i < pieces; i += 13) {
		cr_assert_eq(clair_disk_pread(d, wide, got, 100, (uint64_t)i * PIECE), 0);
		cr_expect_eq(got[0], i);
	}
	cr_expect(is_right(d, big) && is_right(d, other));
	clair_disk_close(d);
}
