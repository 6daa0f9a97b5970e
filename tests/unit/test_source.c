/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source.h"

static char folder[64];
static struct clair_catalog *catalog;
static struct clair_source *source;
static struct clair_stats stats;

static void write_file(const char *name, const char *bytes, size_t size)
{
	char path[128];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	FILE *f = fopen(path, "w");
	fwrite(bytes, 1, size, f);
	fclose(f);
}

static void begin(void)
{
	static char bytes[300001];

	strcpy(folder, "/tmp/clairfs-source-XXXXXX");
	cr_assert(mkdtemp(folder));
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (char)(i * 31 >> 3);
	write_file("file", bytes, sizeof bytes);
	write_file("empty", bytes, 0);
	memset(&stats, 0, sizeof stats);
	int root = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int again = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(clair_catalog_walk(again, 1, NULL, NULL, &catalog), 0);
	close(again);
	cr_assert_eq(clair_source_new(root, catalog, &stats, &source), 0);
}

static void end(void)
{
	char command[128];

	clair_source_free(source);
	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", folder);
	cr_assert_eq(system(command), 0);
}

TestSuite(source, .init = begin, .fini = end);

static struct clair_source_file *open_file(void)
{
	struct clair_source_file *f;

	cr_assert_eq(clair_source_open(source, clair_catalog_find(catalog, "file"), &f), 0);
	return f;
}

/* Read in every way: whole, unaligned, across the end; in memory and not. */
Test(source, bytes_are_right)
{
	unsigned char *buffer = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int cold = 0; cold < 2; cold++) {
		struct clair_source_file *f = open_file();
		if (cold) {
			char path[128];
			snprintf(path, sizeof path, "%s/file", folder);
			int fd = open(path, O_RDONLY);
			fsync(fd);
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
			close(fd);
		}
		stats.pfs.bytes = 0;
		cr_expect_eq(clair_source_read(f, buffer, 303104, 0), 300001);
		cr_expect_eq(stats.pfs.bytes, 300001);
		for (size_t i = 0; i < 300001; i++)
			cr_assert_eq(buffer[i], (unsigned char)(char)(i * 31 >> 3));
		cr_expect_eq(clair_source_read(f, buffer + 1, 1000, 7777), 1000);
		for (size_t i = 0; i < 1000; i++)
			cr_assert_eq(buffer[1 + i],
				     (unsigned char)(char)((i + 7777) * 31 >> 3));
		cr_expect_eq(clair_source_read(f, buffer, 4096, 299008), 993);
		cr_expect_eq(clair_source_read(f, buffer, 4096, 303104), 0);
		clair_source_close(f);
	}
	cr_expect_eq(stats.pfs_opens, 2);
	cr_expect_eq(stats.pfs_errors, 0);
	munmap(buffer, 1 << 20);
}

Test(source, changed_and_gone)
{
	struct clair_source_file *f;
	uint32_t id = clair_catalog_find(catalog, "file");
	char path[128], buffer[64];
	struct stat st;

	write_file("file", "new", 3);
	cr_expect_eq(clair_source_open(source, id, &f), -ESTALE);
	cr_assert_eq(clair_source_open_changed(source, id, &f), 0);
	cr_expect_eq(clair_source_read(f, buffer, sizeof buffer, 0), 3);
	clair_source_close(f);
	cr_expect_eq(clair_source_stat(source, id, &st), 0);
	cr_expect_eq(st.st_size, 3);
	snprintf(path, sizeof path, "%s/file", folder);
	unlink(path);
	cr_expect_eq(clair_source_open(source, id, &f), -ENOENT);
	cr_expect_eq(clair_source_stat(source, id, &st), -ENOENT);
	/* A link in its place is not followed. */
	cr_assert_eq(symlink("/etc/passwd", path), 0);
	cr_expect_lt(clair_source_open_changed(source, id, &f), 0);
}
