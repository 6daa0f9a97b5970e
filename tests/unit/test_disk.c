/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "disk.h"

#define FILES 12
#define LARGEST 20000
#define PLENTY (1ull << 30)

static char top[64], tier[96], source[96];
static struct clair_catalog *catalog;
static unsigned char buffer[LARGEST + 1], bytes[LARGEST + 1];

static void make_file(const char *name, uint64_t size)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", source, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	cr_assert(fd >= 0);
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

static struct clair_catalog *walk(void)
{
	struct clair_catalog *c;
	int root = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	cr_assert_eq(clair_catalog_walk(root, 1, NULL, NULL, &c), 0);
	close(root);
	return c;
}

/* Sizes: 0, 1, and up to LARGEST. */
static void begin(void)
{
	strcpy(top, "/tmp/clairfs-disk-XXXXXX");
	cr_assert(mkdtemp(top));
	snprintf(tier, sizeof tier, "%s/tier", top);
	snprintf(source, sizeof source, "%s/source", top);
	cr_assert_eq(mkdir(source, 0755), 0);
	for (unsigned i = 0; i < FILES; i++) {
		char name[16];
		snprintf(name, sizeof name, "f%02u", i);
		make_file(name, i < 2 ? i : (i * 1801) % LARGEST);
	}
	catalog = walk();
}

static void run(const char *command)
{
	cr_assert_eq(system(command), 0, "%s", command);
}

static void end(void)
{
	char command[128];

	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	run(command);
}

TestSuite(disk, .init = begin, .fini = end, .timeout = 60);

static uint32_t file(unsigned i)
{
	char name[16];

	snprintf(name, sizeof name, "f%02u", i);
	uint32_t id = clair_catalog_find(catalog, name);
	cr_assert_neq(id, CLAIR_NO_ID);
	return id;
}

static uint64_t size_of(uint32_t id)
{
	return clair_catalog_entry(catalog, id)->size;
}

/* The sample's bytes, into OUT. */
static void make_bytes(uint32_t id, unsigned char *out)
{
	uint32_t x = id * 2654435761u + 1;

	for (uint64_t i = 0; i < size_of(id); i++) {
		x = x * 1664525u + 1013904223u;
		out[i] = (unsigned char)(x >> 24);
	}
}

static int try_open(uint64_t cap, uint64_t floor, struct clair_disk **d, char **error)
{
	struct clair_disk_config config = { .path = tier, .bytes = cap, .free_bytes = floor };

	return clair_disk_open(&config, catalog, d, error);
}

static struct clair_disk *open_tier(uint64_t cap)
{
	struct clair_disk *d = NULL;
	char *error = NULL;

	cr_assert_eq(try_open(cap, 0, &d, &error), 0, "%s", error);
	return d;
}

static int add(struct clair_disk *d, uint32_t id)
{
	make_bytes(id, bytes);
	int r = clair_disk_claim(d, size_of(id));
	return r < 0 ? r :
		       clair_disk_add(d, id, bytes, size_of(id),
				      XXH3_64bits(bytes, size_of(id)));
}

/* Reads it; the bytes are the right ones whenever it says so. */
static int check(struct clair_disk *d, uint32_t id)
{
	uint64_t hash = 0;
	int r = clair_disk_read(d, id, buffer, &hash);

	if (r == 0) {
		make_bytes(id, bytes);
		cr_assert_eq(memcmp(buffer, bytes, size_of(id)), 0, "wrong bytes of %u", id);
		cr_assert_eq(hash, XXH3_64bits(bytes, size_of(id)));
	}
	return r;
}

static void add_all(struct clair_disk *d)
{
	for (unsigned i = 0; i < FILES; i++)
		cr_assert_eq(add(d, file(i)), 0, "file %u", i);
}

static void fill(void)
{
	struct clair_disk *d = open_tier(PLENTY);

	add_all(d);
	clair_disk_close(d);
}

static unsigned count_of(struct clair_disk *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < FILES; i++)
		n += clair_disk_has(d, file(i));
	return n;
}

static uint64_t file_size(const char *name)
{
	char path[160];
	struct stat st;

	snprintf(path, sizeof path, "%s/%s", tier, name);
	return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t all_bytes(void)
{
	uint64_t sum = file_size("index");

	for (unsigned i = 0; i < 4; i++) {
		char name[32];
		snprintf(name, sizeof name, "segment-%06u", i);
		sum += file_size(name);
	}
	return sum;
}

static void flip(const char *name, uint64_t at)
{
	char path[160], byte;

	snprintf(path, sizeof path, "%s/%s", tier, name);
	int fd = open(path, O_RDWR);
	cr_assert_eq(pread(fd, &byte, 1, (off_t)at), 1);
	byte ^= 0x40;
	cr_assert_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
	close(fd);
}

static void cut(const char *name, uint64_t at)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", tier, name);
	cr_assert_eq(truncate(path, (off_t)at), 0);
}

/* Keeps a full tier aside and brings it back. */
static void keep(void)
{
	char command[300];

	fill();
	snprintf(command, sizeof command, "cp -a '%s' '%s.kept'", tier, tier);
	run(command);
}

static void restore(void)
{
	static const char *const names[] = { "index", "segment-000000" };

	for (int i = 0; i < 2; i++) {
		static char all[1 << 20];
		char path[200];

		snprintf(path, sizeof path, "%s.kept/%s", tier, names[i]);
		int in = open(path, O_RDONLY);
		ssize_t n = read(in, all, sizeof all);
		close(in);
		cr_assert(n > 0 && n < (ssize_t)sizeof all);
		snprintf(path, sizeof path, "%s/%s", tier, names[i]);
		int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		cr_assert_eq(write(out, all, (size_t)n), n);
		close(out);
	}
}

Test(disk, what_is_added_is_read)
{
	struct clair_disk *d = open_tier(PLENTY);
	struct clair_disk_usage u;

	for (unsigned i = 0; i < FILES; i++) {
		cr_expect_not(clair_disk_has(d, file(i)));
		cr_expect_eq(clair_disk_read(d, file(i), buffer, NULL), -ENOENT);
	}
	add_all(d);
	for (unsigned i = 0; i < FILES; i++) {
		cr_expect(clair_disk_has(d, file(i)));
		cr_expect_eq(check(d, file(i)), 0);
		cr_expect_eq(add(d, file(i)), -EEXIST);
	}
	clair_disk_usage(d, &u);
	cr_expect_eq(u.samples, FILES);
	cr_expect_eq(u.bytes, clair_catalog_bytes(catalog));
	cr_expect_geq(u.capacity, u.bytes);
	cr_expect_eq(u.errors + u.damaged, 0);
	clair_disk_forget(d, file(3));
	clair_disk_forget(d, file(3));
	cr_expect_not(clair_disk_has(d, file(3)));
	cr_expect_eq(check(d, file(3)), -ENOENT);
	clair_disk_usage(d, &u);
	cr_expect_eq(u.samples, FILES - 1);
	cr_expect_eq(add(d, file(3)), 0);
	cr_expect_eq(check(d, file(3)), 0);
	cr_expect_str_eq(clair_disk_path(d), tier);
	clair_disk_close(d);
	clair_disk_close(NULL);
}

Test(disk, parts_are_read_and_checked)
{
	struct clair_disk *d = open_tier(PLENTY);
	uint32_t id = file(11);

	add_all(d);
	make_bytes(id, bytes);
	cr_assert_eq(clair_disk_pread(d, id, buffer, 777, 1234), 0);
	cr_expect_eq(memcmp(buffer, bytes + 1234, 777), 0);
	cr_expect_eq(clair_disk_pread(d, id, buffer, 0, size_of(id)), 0);
	cr_expect_eq(clair_disk_pread(d, id, buffer, 1, size_of(id)), -EINVAL);
	cr_expect_eq(clair_disk_pread(d, id, buffer, 2, UINT64_MAX), -EINVAL);
	clair_disk_close(d);
	/* Damage far from the part that is asked for is noticed, too. */
	flip("segment-000000", file_size("segment-000000") - 1);
	d = open_tier(PLENTY);
	cr_expect_eq(clair_disk_pread(d, id, buffer, 10, 0), -EBADMSG);
	cr_expect_not(clair_disk_has(d, id));
	cr_expect_eq(clair_disk_pread(d, id, buffer, 10, 0), -ENOENT);
	clair_disk_close(d);
}

Test(disk, the_next_mount_finds_it)
{
	struct clair_disk *d = open_tier(PLENTY);

	add_all(d);
	clair_disk_forget(d, file(5));
	clair_disk_forget(d, file(6));
	cr_assert_eq(add(d, file(6)), 0);
	clair_disk_close(d);
	for (int round = 0; round < 3; round++) {
		d = open_tier(PLENTY);
		cr_expect_eq(count_of(d), FILES - 1);
		for (unsigned i = 0; i < FILES; i++)
			cr_expect_eq(check(d, file(i)), i == 5 ? -ENOENT : 0);
		clair_disk_close(d);
	}
	/* And goes on filling it. */
	d = open_tier(PLENTY);
	cr_expect_eq(add(d, file(5)), 0);
	clair_disk_close(d);
	d = open_tier(PLENTY);
	for (unsigned i = 0; i < FILES; i++)
		cr_expect_eq(check(d, file(i)), 0);
	clair_disk_close(d);
}

Test(disk, a_changed_file_is_not_used)
{
	struct timespec times[2] = { { 0, UTIME_OMIT }, { 1000000000, 0 } };
	char path[160];

	fill();
	make_file("f07", size_of(file(7)) + 1);
	snprintf(path, sizeof path, "%s/f08", source);
	cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	clair_catalog_free(catalog);
	catalog = walk();
	struct clair_disk *d = open_tier(PLENTY);
	for (unsigned i = 0; i < FILES; i++)
		cr_expect_eq(clair_disk_has(d, file(i)), i != 7 && i != 8, "file %u", i);
	cr_expect_eq(check(d, file(11)), 0);
	clair_disk_close(d);
}

Test(disk, other_data_is_dropped)
{
	fill();
	clair_catalog_free(catalog);
	for (unsigned i = 0; i < FILES; i++) {
		char name[16];
		snprintf(name, sizeof name, "f%02u", i);
		make_file(name, 100 + i);
	}
	catalog = walk();
	struct clair_disk *d = open_tier(PLENTY);
	cr_expect_eq(count_of(d), 0);
	cr_expect_eq(all_bytes(), 0);
	add_all(d);
	cr_expect_eq(check(d, file(3)), 0);
	clair_disk_close(d);
}

Test(disk, a_second_mount_is_refused)
{
	struct clair_disk *d = open_tier(PLENTY), *second = NULL;
	struct clair_disk_check found;
	char *error = NULL;

	cr_expect_eq(try_open(PLENTY, 0, &second, &error), -EBUSY);
	cr_assert(error);
	cr_expect(strstr(error, tier) && !strchr(error, '\n'));
	free(error);
	error = NULL;
	cr_expect_eq(clair_disk_verify(tier, false, stderr, &found, &error), -EBUSY);
	cr_expect(error);
	free(error);
	clair_disk_close(d);
	clair_disk_close(open_tier(PLENTY));
}

Test(disk, a_path_that_cannot_be)
{
	struct clair_disk *d = NULL;
	char *error = NULL;

	snprintf(tier, sizeof tier, "%s/source/f05", top); /* a file */
	cr_expect_lt(try_open(PLENTY, 0, &d, &error), 0);
	cr_expect(error && strstr(error, tier));
	free(error);
	error = NULL;
	snprintf(tier, sizeof tier, "%s/none/tier", top);
	cr_expect_lt(try_open(PLENTY, 0, &d, &error), 0);
	cr_expect(error && strstr(error, tier));
	free(error);
}

/* A crash may leave any beginning of the index: what it tells is right, and it goes on. */
Test(disk, an_index_cut_anywhere)
{
	keep();
	uint64_t size = file_size("index");
	cr_assert_eq(size % FILES, 0);
	for (uint64_t at = 0; at < size; at++) {
		restore();
		cut("index", at);
		struct clair_disk *d = open_tier(PLENTY);
		cr_expect_eq(count_of(d), at / (size / FILES), "cut at %lu", at);
		for (unsigned i = 0; i < FILES; i++)
			if (clair_disk_has(d, file(i)))
				cr_expect_eq(check(d, file(i)), 0);
		if (at % 23 == 0) {
			add(d, file(FILES - 1));
			clair_disk_close(d);
			d = open_tier(PLENTY);
			cr_expect_eq(check(d, file(FILES - 1)), 0, "cut at %lu", at);
		}
		clair_disk_close(d);
	}
}

Test(disk, an_index_with_changed_bytes)
{
	keep();
	for (uint64_t at = 0; at < file_size("index"); at++) {
		restore();
		flip("index", at);
		struct clair_disk *d = open_tier(PLENTY);
		cr_expect_lt(count_of(d), FILES);
		for (unsigned i = 0; i < FILES; i++)
			check(d, file(i));
		clair_disk_close(d);
	}
}

/* Reads all: those whose bytes are there are read, others are told and forgotten. */
static unsigned read_damaged(struct clair_disk *d)
{
	unsigned right = 0;

	for (unsigned i = 0; i < FILES; i++) {
		bool had = clair_disk_has(d, file(i));
		int r = check(d, file(i));

		cr_expect(r == 0 || r == (had ? -EBADMSG : -ENOENT), "%d", r);
		cr_expect_eq(clair_disk_has(d, file(i)), r == 0);
		right += r == 0;
	}
	return right;
}

Test(disk, segments_cut)
{
	keep();
	uint64_t size = file_size("segment-000000");
	for (uint64_t at = 0; at < size; at += 509) {
		restore();
		cut("segment-000000", at);
		struct clair_disk *d = open_tier(PLENTY);
		cr_expect_lt(read_damaged(d), FILES);
		/* They may be fetched anew. */
		for (unsigned i = 0; i < FILES; i++)
			if (!clair_disk_has(d, file(i)))
				cr_expect_eq(add(d, file(i)), 0);
		clair_disk_close(d);
		d = open_tier(PLENTY);
		cr_expect_eq(read_damaged(d), FILES, "cut at %lu", at);
		clair_disk_close(d);
	}
}

Test(disk, segments_changed)
{
	keep();
	uint64_t size = file_size("segment-000000");
	for (uint64_t at = 0; at < size; at += 503) {
		restore();
		flip("segment-000000", at);
		struct clair_disk *d = open_tier(PLENTY);
		cr_expect_eq(read_damaged(d), FILES - 1, "changed at %lu", at);
		struct clair_disk_usage u;
		clair_disk_usage(d, &u);
		cr_expect_eq(u.damaged, 1);
		clair_disk_close(d);
	}
}

Test(disk, a_segment_that_is_gone)
{
	char path[160];

	fill();
	snprintf(path, sizeof path, "%s/segment-000000", tier);
	cr_assert_eq(unlink(path), 0);
	struct clair_disk *d = open_tier(PLENTY);
	for (unsigned i = 2; i < FILES; i++)
		cr_expect_lt(check(d, file(i)), 0);
	for (unsigned i = 2; i < FILES; i++) {
		cr_expect_not(clair_disk_has(d, file(i)), "file %u", i);
		cr_expect_eq(add(d, file(i)), 0);
		cr_expect_eq(check(d, file(i)), 0);
	}
	clair_disk_close(d);
}

/* The cap holds at every moment, whatever is added and forgotten. */
Test(disk, the_cap_holds)
{
	for (uint64_t cap = 0; cap < 40000; cap += 3333) {
		struct clair_disk_usage u;
		struct clair_disk *d = open_tier(cap);
		bool refused = false;

		for (unsigned round = 0; round < 20; round++) {
			for (unsigned i = 0; i < FILES; i++) {
				refused |= add(d, file(i)) == -ENOSPC;
				cr_assert_leq(all_bytes(), cap);
			}
			for (unsigned i = round % 3; i < FILES; i += 3) {
				clair_disk_forget(d, file(i));
				cr_assert_leq(all_bytes(), cap);
			}
		}
		clair_disk_usage(d, &u);
		cr_expect(refused);
		cr_expect(u.full);
		cr_expect_leq(u.bytes, cap);
		clair_disk_close(d);
		/* Room that nobody counts would be there after the next mount. */
		d = open_tier(cap);
		cr_expect_leq(all_bytes(), cap);
		clair_disk_close(d);
	}
}

Test(disk, a_lower_cap_holds)
{
	fill();
	struct clair_disk *d = open_tier(20000);
	cr_expect_leq(all_bytes(), 20000);
	for (unsigned i = 0; i < FILES; i++) {
		add(d, file(i));
		cr_expect_leq(all_bytes(), 20000);
	}
	cr_expect_gt(count_of(d), 0);
	clair_disk_close(d);
}

Test(disk, a_claim_is_given_back)
{
	struct clair_disk *d = open_tier(10000);

	for (int i = 0; i < 1000; i++) {
		cr_assert_eq(clair_disk_claim(d, 9000), 0);
		cr_assert_eq(clair_disk_claim(d, 9000), -ENOSPC);
		clair_disk_unclaim(d, 9000);
	}
	clair_disk_close(d);
}

Test(disk, the_floor_holds)
{
	struct statvfs st;
	struct clair_disk *d = NULL;
	char *error = NULL;

	cr_assert_eq(statvfs(top, &st), 0);
	uint64_t free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	cr_assert_eq(try_open(PLENTY, free_bytes * 2, &d, &error), 0);
	cr_expect_eq(clair_disk_claim(d, 1), -ENOSPC);
	struct clair_disk_usage u;
	clair_disk_usage(d, &u);
	cr_expect(u.full);
	clair_disk_close(d);
	cr_assert_eq(try_open(PLENTY, free_bytes / 2, &d, &error), 0);
	cr_expect_eq(clair_disk_claim(d, 1), 0);
	clair_disk_unclaim(d, 1);
	clair_disk_close(d);
}

/* Writes that fail cost samples, never right bytes; the tier gives up after some. */
Test(disk, write_errors)
{
	struct rlimit limit = { 30000, RLIM_INFINITY };
	struct clair_disk_usage u;

	signal(SIGXFSZ, SIG_IGN);
	struct clair_disk *d = open_tier(PLENTY);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	unsigned kept = 0;
	int last = 0;
	for (unsigned k = 0; k < 5 * FILES; k++) {
		last = add(d, file(k % FILES));
		kept += last == 0;
		cr_expect(last == 0 || last == -EEXIST || last == -EFBIG || last == -ENOSPC, "%d",
			  last);
	}
	limit.rlim_cur = RLIM_INFINITY;
	setrlimit(RLIMIT_FSIZE, &limit);
	clair_disk_usage(d, &u);
	cr_expect_gt(u.errors, 0);
	cr_expect_lt(kept, FILES);
	cr_expect_eq(read_damaged(d), kept);
	clair_disk_close(d);
	d = open_tier(PLENTY);
	cr_expect_eq(read_damaged(d), kept);
	for (unsigned i = 0; i < FILES; i++)
		if (!clair_disk_has(d, file(i)))
			cr_expect_eq(add(d, file(i)), 0);
	cr_expect_eq(read_damaged(d), FILES);
	clair_disk_close(d);
}

static int verify(bool repair, struct clair_disk_check *found)
{
	char *error = NULL;
	FILE *report = fopen("/dev/null", "w");
	int r = clair_disk_verify(tier, repair, report, found, &error);

	fclose(report);
	cr_assert((r < 0) == (error != NULL));
	free(error);
	return r;
}

Test(disk, verify_finds_and_repairs)
{
	struct clair_disk_check found;

	cr_expect_lt(verify(false, &found), 0); /* no folder */
	fill();
	cr_assert_eq(verify(false, &found), 0);
	cr_expect_eq(found.samples, FILES);
	cr_expect_eq(found.bytes, clair_catalog_bytes(catalog));
	cr_expect_eq(found.damaged, 0);
	cr_expect(found.complete);
	flip("segment-000000", file_size("segment-000000") / 2);
	flip("segment-000000", 5);
	cut("index", file_size("index") - 1);
	for (int repair = 0; repair < 2; repair++) {
		cr_assert_eq(verify(repair, &found), 0);
		cr_expect_eq(found.samples, FILES - 1);
		cr_expect_eq(found.damaged, 2);
		cr_expect_not(found.complete);
	}
	cr_assert_eq(verify(false, &found), 0);
	cr_expect_eq(found.samples, FILES - 3);
	cr_expect_eq(found.damaged, 0);
	cr_expect(found.complete);
	struct clair_disk *d = open_tier(PLENTY);
	cr_expect_eq(count_of(d), FILES - 3);
	cr_expect_eq(read_damaged(d), FILES - 3);
	clair_disk_close(d);
}
