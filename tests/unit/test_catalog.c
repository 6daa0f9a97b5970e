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
#include <xxhash.h>

#include "catalog.h"
#include "catalog_open.h"
#include "cleanup.h"

static char top[64];
static int top_fd;

static void put(const char *name, const char *text)
{
	int fd = openat(top_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0640);

	cr_assert(fd >= 0, "%s", name);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void make_tree(void)
{
	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	top_fd = open(top, O_RDONLY | O_DIRECTORY);
	mkdirat(top_fd, "b", 0755);
	mkdirat(top_fd, "a", 0755);
	mkdirat(top_fd, "a/deep", 0755);
	mkdirat(top_fd, "empty", 0700);
	put("a/1.png", "one");
	put("a/deep/x", "deep");
	put("b/\xff\xfe", "odd");
	put("b/z", "");
	symlinkat("../a/1.png", top_fd, "b/link");
	symlinkat("/nowhere", top_fd, "dangling");
	symlinkat("loop", top_fd, "loop");
	symlinkat("a", top_fd, "to-a");
	symlinkat("to-a/deep/x", top_fd, "through");
	symlinkat("../outside", top_fd, "out");
}

static void remove_tree(void)
{
	char command[128];

	close(top_fd);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(catalog, .init = make_tree, .fini = remove_tree);

static void check_tree(const struct clair_catalog *c)
{
	char path[256];

	cr_assert_eq(clair_catalog_count(c), 15);
	uint32_t one = clair_catalog_find(c, "a/1.png");
	cr_assert_neq(one, CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_entry(c, one)->size, 3);
	cr_assert_eq(clair_catalog_entry(c, one)->mode, 0640);
	cr_assert_eq(clair_catalog_path(c, one, path, sizeof path), 7);
	cr_assert_str_eq(path, "a/1.png");
	cr_assert_eq(clair_catalog_path(c, one, path, 4), 7);
	cr_assert_str_eq(path, "a/1");
	cr_assert_neq(clair_catalog_find(c, "b/\xff\xfe"), CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_find(c, "b/none"), CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_find(c, "a/1.pn"), CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_find(c, "."), 0);
	cr_assert_eq(clair_catalog_find(c, "to-a/1.png"), CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_find_through(c, "to-a/1.png"), one);
	cr_assert_eq(clair_catalog_find_through(c, "b/link"), clair_catalog_find(c, "b/link"));
	cr_assert_eq(clair_catalog_resolve(c, clair_catalog_find(c, "b/link")), one);
	cr_assert_eq(clair_catalog_resolve(c, clair_catalog_find(c, "through")),
		     clair_catalog_find(c, "a/deep/x"));
	cr_assert_eq(clair_catalog_resolve(c, clair_catalog_find(c, "dangling")),
		     CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_resolve(c, clair_catalog_find(c, "loop")), CLAIR_NO_ID);
	cr_assert_eq(clair_catalog_resolve(c, clair_catalog_find(c, "out")), CLAIR_NO_ID);
	cr_assert_str_eq(clair_catalog_target(c, clair_catalog_find(c, "b/link")),
			 "../a/1.png");
	cr_assert_eq(clair_catalog_bytes(c), 10);
	for (uint32_t id = 1; id < clair_catalog_count(c); id++)
		cr_assert_lt(clair_catalog_entry(c, id)->parent, id);
}

/* The saved form in memory. */
static int pack(const struct clair_catalog *c, void **bytes, size_t *size)
{
	autoclose int fd = memfd_create("test", MFD_CLOEXEC);
	int r = clair_catalog_write(c, fd);
	struct stat st;

	cr_assert(fd >= 0 && fstat(fd, &st) == 0);
	*size = (size_t)st.st_size;
	*bytes = malloc(*size);
	cr_assert_eq(pread(fd, *bytes, *size, 0), st.st_size);
	return r;
}

Test(catalog, walk_and_find)
{
	struct clair_catalog *c = NULL;

	cr_assert_eq(clair_catalog_walk(top_fd, 0, NULL, NULL, &c), 0);
	check_tree(c);
	clair_catalog_free(c);
}

Test(catalog, threads_do_not_matter)
{
	struct clair_catalog *a = NULL, *b = NULL;

	cr_assert_eq(clair_catalog_walk(top_fd, 1, NULL, NULL, &a), 0);
	cr_assert_eq(clair_catalog_walk(top_fd, 8, NULL, NULL, &b), 0);
	cr_assert_eq(clair_catalog_hash(a), clair_catalog_hash(b));
	clair_catalog_free(a);
	clair_catalog_free(b);
}

Test(catalog, absolute_links_below_the_source)
{
	struct clair_catalog *c = NULL;
	char target[128];

	snprintf(target, sizeof target, "%s/a/1.png", top);
	symlinkat(target, top_fd, "absolute");
	cr_assert_eq(clair_catalog_walk(top_fd, 2, NULL, NULL, &c), 0);
	uint32_t link = clair_catalog_find(c, "absolute");
	cr_assert_eq(clair_catalog_resolve(c, link), CLAIR_NO_ID);
	clair_catalog_set_root_path(c, top);
	cr_assert_eq(clair_catalog_resolve(c, link), clair_catalog_find(c, "a/1.png"));
	clair_catalog_free(c);
}

Test(catalog, saved_and_loaded)
{
	struct clair_catalog *c = NULL, *d = NULL;
	char file[96];

	snprintf(file, sizeof file, "%s.catalog", top);
	cr_assert_eq(clair_catalog_walk(top_fd, 2, NULL, NULL, &c), 0);
	cr_assert_eq(clair_catalog_save(c, file), 0);
	cr_assert_eq(clair_catalog_load(file, top_fd, &d), 0);
	check_tree(d);
	cr_assert_eq(clair_catalog_hash(c), clair_catalog_hash(d));
	clair_catalog_free(d);
	put("a/new", "more");
	cr_assert_eq(clair_catalog_load(file, top_fd, &d), -ESTALE);
	unlink(file);
	cr_assert_eq(clair_catalog_load(file, top_fd, &d), -ENOENT);
	clair_catalog_free(c);
}

/* Whatever byte is wrong or missing, it is seen. */
Test(catalog, damage_is_seen)
{
	struct clair_catalog *c = NULL, *d = NULL;
	void *bytes = NULL;
	size_t size = 0;

	cr_assert_eq(clair_catalog_walk(top_fd, 2, NULL, NULL, &c), 0);
	cr_assert_eq(pack(c, &bytes, &size), 0);
	for (size_t i = 0; i < size; i++) {
		((unsigned char *)bytes)[i] ^= 0x10;
		cr_assert_eq(clair_catalog_unpack(bytes, size, &d), -EBADMSG, "%zu", i);
		((unsigned char *)bytes)[i] ^= 0x10;
		cr_assert_eq(clair_catalog_unpack(bytes, i, &d), -EBADMSG, "%zu", i);
	}
	cr_assert_eq(clair_catalog_unpack(bytes, size, &d), 0);
	clair_catalog_free(d);
	clair_catalog_free(c);
	free(bytes);
}

static void use_all(const struct clair_catalog *c)
{
	char path[4096];

	for (uint32_t id = 0; id < clair_catalog_count(c); id++) {
		const struct clair_entry *e = clair_catalog_entry(c, id);
		const char *name = clair_catalog_name(c, id);

		clair_catalog_path(c, id, path, sizeof path);
		clair_catalog_find(c, path);
		clair_catalog_child(c, e->parent, name, strlen(name));
		uint32_t to = clair_catalog_resolve(c, id);
		cr_assert(to == CLAIR_NO_ID || to < clair_catalog_count(c));
		clair_catalog_owner(c, id);
		if (e->kind == CLAIR_FOLDER)
			cr_assert(e->count <= clair_catalog_count(c));
	}
}

/* A peer may send anything with a right checksum: it is refused, or harmless. The checksum
 * is eight bytes at 16 and covers what follows it. */
Test(catalog, forged_ones_do_no_harm)
{
	struct clair_catalog *c = NULL, *d = NULL;
	void *packed = NULL;
	size_t size = 0;
	unsigned random = 12345, accepted = 0;

	cr_assert_eq(clair_catalog_walk(top_fd, 2, NULL, NULL, &c), 0);
	cr_assert_eq(pack(c, &packed, &size), 0);
	unsigned char *bytes = packed;
	for (int i = 0; i < 20000; i++) {
		random = random * 1103515245 + 12345;
		size_t at = 24 + (random >> 8) % (size - 24);
		unsigned char before = bytes[at];
		random = random * 1103515245 + 12345;
		bytes[at] = i % 3 ? (unsigned char)(random >> 16) : 0xff;
		uint64_t sum = XXH3_64bits(bytes + 24, size - 24);
		memcpy(bytes + 16, &sum, sizeof sum);
		int r = clair_catalog_unpack(bytes, size, &d);
		cr_assert(r == 0 || r == -EBADMSG);
		if (r == 0) {
			use_all(d);
			clair_catalog_free(d);
			accepted++;
		}
		bytes[at] = before;
	}
	cr_assert(accepted > 0 && accepted < 20000);
	free(packed);
	clair_catalog_free(c);
}

Test(catalog, unreadable_root)
{
	struct clair_catalog *c = NULL;
	int fd = openat(top_fd, "a/1.png", O_RDONLY);

	cr_assert_eq(clair_catalog_walk(fd, 1, NULL, NULL, &c), -ENOTDIR);
	cr_assert_null(c);
	close(fd);
}

/* More than a thread stats at a time, with links among them, in every number of threads. */
Test(catalog, large_folder)
{
	struct clair_catalog *a = NULL, *b = NULL;
	char name[32], path[64];

	cr_assert_eq(mkdirat(top_fd, "large", 0755), 0);
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof name, "large/%d", i);
		if (i % 3)
			put(name, "x");
		else
			cr_assert_eq(symlinkat(name + 5, top_fd, name), 0);
	}
	cr_assert_eq(clair_catalog_walk(top_fd, 1, NULL, NULL, &a), 0);
	cr_assert_eq(clair_catalog_walk(top_fd, 7, NULL, NULL, &b), 0);
	cr_assert_eq(clair_catalog_bytes(a), 2010);
	cr_assert_eq(clair_catalog_count(a), 3016, "%u", clair_catalog_count(a));
	cr_assert_eq(clair_catalog_count(b), 3016, "%u", clair_catalog_count(b));
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof name, "large/%d", i);
		uint32_t id = clair_catalog_find(b, name);
		cr_assert_neq(id, CLAIR_NO_ID);
		clair_catalog_path(b, id, path, sizeof path);
		cr_assert_str_eq(path, name);
		cr_assert_eq(clair_catalog_find(a, name), id);
		if (i % 3 == 0)
			cr_assert_str_eq(clair_catalog_target(b, id), name + 5);
	}
	clair_catalog_free(a);
	clair_catalog_free(b);
}

Test(catalog, unreadable_folder_is_shown)
{
	struct clair_catalog *c = NULL;

	cr_assert_eq(mkdirat(top_fd, "secret", 0755), 0);
	put("secret/file", "x");
	cr_assert_eq(fchmodat(top_fd, "secret", 0, 0), 0);
	cr_assert_eq(fchmod(top_fd, 0755), 0);
	bool root = geteuid() == 0;
	if (root)
		cr_assert_eq(seteuid(65534), 0);
	int r = clair_catalog_walk(top_fd, 2, NULL, NULL, &c);
	if (root)
		cr_assert_eq(seteuid(0), 0);
	cr_assert_eq(r, 0);
	uint32_t id = clair_catalog_find(c, "secret");
	cr_assert_neq(id, CLAIR_NO_ID);
	cr_assert(clair_catalog_entry(c, id)->flags & CLAIR_UNREADABLE);
	cr_assert_eq(clair_catalog_entry(c, id)->count, 0);
	cr_assert_neq(clair_catalog_find(c, "a/1.png"), CLAIR_NO_ID);
	fchmodat(top_fd, "secret", 0700, 0);
	clair_catalog_free(c);
}

static void open_with(const char *file, bool walked)
{
	struct clair_options options;
	struct clair_catalog *c = NULL;
	bool really = !walked;

	cr_assert_eq(clair_options_init(&options), 0);
	options.catalog = strdup(file);
	cr_assert_eq(clair_catalog_open(&options, top_fd, top, NULL, NULL, &c, &really), 0);
	cr_assert_eq(really, walked);
	check_tree(c);
	clair_catalog_free(c);
	clair_options_finish(&options);
}

static void write_file(const char *file, const char *text, int flags)
{
	int fd = open(file, O_WRONLY | flags, 0644);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

/* Kept in a file: read when it is right, made again when it is damaged, and somebody's
 * other file is left alone. */
Test(catalog, opened_from_a_file)
{
	char file[96], text[64] = "";

	snprintf(file, sizeof file, "%s.catalog", top);
	open_with(file, true);
	open_with(file, false);
	write_file(file, "more", O_APPEND);
	open_with(file, true);
	open_with(file, false);
	write_file(file, "my own list of things\n", O_TRUNC);
	open_with(file, true);
	int fd = open(file, O_RDONLY);
	cr_assert_eq(read(fd, text, sizeof text - 1), 22);
	close(fd);
	cr_assert_str_eq(text, "my own list of things\n");
	unlink(file);
}
