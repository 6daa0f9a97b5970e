/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calibrate.h"

static char folder[64], file[128];

static void begin(void)
{
	strcpy(folder, "/tmp/clairfs-calibrate-XXXXXX");
	cr_assert(mkdtemp(folder));
	snprintf(file, sizeof file, "%s/bandwidth.json", folder);
}

static void end(void)
{
	char command[128];

	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	cr_assert_eq(system(command), 0);
}

TestSuite(calibrate, .init = begin, .fini = end);

static unsigned entries(const char *path)
{
	DIR *d = opendir(path);
	unsigned n = 0;

	cr_assert(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.' || (e->d_name[1] && e->d_name[1] != '.');
	closedir(d);
	return n;
}

static void write_file(const char *path, const char *text, size_t size)
{
	FILE *f = fopen(path, "w");

	cr_assert(f);
	cr_assert_eq(fwrite(text, 1, size, f), size);
	cr_assert_eq(fclose(f), 0);
}

static struct clair_model measured(void)
{
	struct clair_model m = { 0 };

	cr_assert_eq(clair_curve_set(&m.pfs, 1, 15e6), 0);
	cr_assert_eq(clair_curve_set(&m.pfs, 4, 50.5e6), 0);
	cr_assert_eq(clair_curve_set(&m.pfs, 32, 123e6), 0);
	cr_assert_eq(clair_curve_set(&m.ram.read, 1, 9e9), 0);
	cr_assert_eq(clair_curve_set(&m.cache.read, 1, 2e9), 0);
	cr_assert_eq(clair_curve_set(&m.cache.write, 1, 1e9), 0);
	return m;
}

static void same_curve(const struct clair_curve *got, const struct clair_curve *want)
{
	cr_assert_eq(got->count, want->count);
	for (uint32_t i = 0; i < want->count; i++) {
		cr_expect_eq(got->at[i].clients, want->at[i].clients);
		cr_expect(fabs(got->at[i].rate - want->at[i].rate) < 1, "%g, not %g",
			  got->at[i].rate, want->at[i].rate);
	}
}

Test(calibrate, saved_and_loaded)
{
	struct clair_model m = measured(), got = { 0 };

	cr_assert_eq(clair_calibrate_load(file, &got), -ENOENT);
	cr_assert_eq(clair_calibrate_save(file, &m), 0);
	cr_expect_eq(entries(folder), 1, "a temporary file is left");
	cr_assert_eq(clair_calibrate_load(file, &got), 0);
	same_curve(&got.pfs, &m.pfs);
	same_curve(&got.ram.read, &m.ram.read);
	same_curve(&got.cache.read, &m.cache.read);
	same_curve(&got.cache.write, &m.cache.write);
	/* A later measurement takes the place of the first. */
	clair_curve_set(&m.pfs, 4, 60e6);
	memset(&got, 0, sizeof got);
	cr_assert_eq(clair_calibrate_save(file, &m), 0);
	cr_assert_eq(clair_calibrate_load(file, &got), 0);
	same_curve(&got.pfs, &m.pfs);
}

Test(calibrate, where_it_cannot_be_saved)
{
	struct clair_model m = measured();
	char path[160];

	snprintf(path, sizeof path, "%s/nosuch/file", folder);
	cr_expect_lt(clair_calibrate_save(path, &m), 0);
	cr_expect_eq(entries(folder), 0);
}

/* Cut at every byte: told, or what was whole; never a crash or a number that is none. */
Test(calibrate, cut_anywhere)
{
	struct clair_model m = measured();
	char text[4096];

	cr_assert_eq(clair_calibrate_save(file, &m), 0);
	FILE *f = fopen(file, "r");
	size_t size = fread(text, 1, sizeof text, f), end = size;
	fclose(f);
	cr_assert(size > 0 && size < sizeof text);
	while (end && text[end - 1] != '}')
		end--;
	for (size_t cut = 0; cut < size; cut++) {
		struct clair_model got = { 0 };
		write_file(file, text, cut);
		cr_assert_eq(clair_calibrate_load(file, &got), cut < end ? -EBADMSG : 0);
		cr_assert(cut >= end || !got.pfs.count);
	}
}

Test(calibrate, what_makes_no_sense_is_left_aside)
{
	static const char *const bad[] = {
		"", "[]", "7", "{}", "{\"version\": 2, \"pfs\": [[1, 5]]}",
		"{\"version\": \"1\", \"pfs\": [[1, 5]]}", "{\"version\": 1",
	};
	const char *odd = "{\"version\": 1, \"pfs\": [[0, 5], [-1, 5], [2, -5], [3, 0], "
			  "[\"4\", 5], [5], [], 7, null, {\"a\": 1}, [8, 40, 3]], "
			  "\"ram\": {\"1\": 2}, \"cache_read\": null, \"cache_write\": 3}";

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		struct clair_model m = { 0 };
		write_file(file, bad[i], strlen(bad[i]));
		cr_expect_eq(clair_calibrate_load(file, &m), -EBADMSG, "%s", bad[i]);
		cr_expect_eq(m.pfs.count, 0);
	}
	struct clair_model m = { 0 };
	write_file(file, odd, strlen(odd));
	cr_assert_eq(clair_calibrate_load(file, &m), 0);
	cr_assert_eq(m.pfs.count, 1);
	cr_expect_eq(m.pfs.at[0].clients, 8);
	cr_expect_eq(m.pfs.at[0].rate, 40e6);
	cr_expect_eq(m.ram.read.count + m.cache.read.count + m.cache.write.count, 0);
}

Test(calibrate, a_path_for_each_source)
{
	char a[4096], b[4096], again[4096], tiny[16];
	struct stat st;

	setenv("XDG_CACHE_HOME", folder, 1);
	cr_assert_eq(clair_calibrate_path("/data/a", true, a, sizeof a), 0);
	cr_assert_eq(clair_calibrate_path("/data/b", true, b, sizeof b), 0);
	cr_assert_eq(clair_calibrate_path("/data/a", true, again, sizeof again), 0);
	cr_expect_str_eq(a, again);
	cr_expect_str_neq(a, b);
	cr_expect_eq(strncmp(a, folder, strlen(folder)), 0);
	*strrchr(a, '/') = '\0';
	cr_expect(stat(a, &st) == 0 && S_ISDIR(st.st_mode), "no folder was made");
	cr_expect_eq(clair_calibrate_path("/data/a", true, tiny, sizeof tiny), -ENAMETOOLONG);
	/* A relative one is no place: $HOME then. */
	setenv("XDG_CACHE_HOME", "here", 1);
	setenv("HOME", folder, 1);
	cr_assert_eq(clair_calibrate_path("/data/a", true, a, sizeof a), 0);
	cr_expect_eq(strncmp(a, folder, strlen(folder)), 0);
	cr_expect(strstr(a, "/.cache/clairfs/"));
	unsetenv("HOME");
	cr_expect_eq(clair_calibrate_path("/data/a", true, a, sizeof a), -ENOENT);
}

Test(calibrate, folders)
{
	struct clair_model_class class = { 0 };
	char path[160];

	cr_assert_eq(clair_calibrate_folder(folder, 5 << 20, &class), 0);
	cr_expect_gt(clair_curve_rate(&class.read, 1), 0);
	cr_expect_gt(clair_curve_rate(&class.write, 1), 0);
	cr_expect_eq(entries(folder), 0, "its file is left");
	snprintf(path, sizeof path, "%s/nosuch", folder);
	cr_expect_eq(clair_calibrate_folder(path, 5 << 20, &class), -ENOENT);
	cr_expect_gt(clair_calibrate_memory(), 0);
}

/* Each file is read once over all numbers of readers; who has none left measures nothing. */
Test(calibrate, source)
{
	enum { FILES = 6, SIZE = 8 << 20 };
	struct clair_stats stats = { 0 };
	struct clair_catalog *catalog;
	struct clair_source *source;
	struct clair_curve curve = { 0 };
	char *bytes = calloc(1, SIZE), path[160];

	for (int with = 0; with < 2; with++) {
		for (int i = 0; with && i < FILES; i++) {
			snprintf(path, sizeof path, "%s/f%d", folder, i);
			write_file(path, bytes, SIZE);
		}
		int root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		cr_assert_eq(clair_catalog_walk(root, 1, NULL, NULL, &catalog), 0);
		cr_assert_eq(clair_source_new(root, catalog, &stats, &source), 0);
		int r = clair_calibrate_source(source, catalog, 4, 60, &curve);
		cr_assert_eq(r, with ? 0 : -ENODATA);
		clair_source_free(source);
		clair_catalog_free(catalog);
	}
	cr_expect_eq(atomic_load(&stats.pfs.bytes), (uint64_t)FILES * SIZE);
	cr_assert_eq(curve.count, 1);
	cr_expect_eq(curve.at[0].clients, 1);
	cr_expect_gt(curve.at[0].rate, 0);
	free(bytes);
}
