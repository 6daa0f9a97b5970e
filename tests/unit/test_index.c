/* SPDX-License-Identifier: BSD-3-Clause */
/* Dataset orders against what the frameworks listed for the same folders. */
#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "catalog.h"
#include "cleanup.h"
#include "index.h"

static char top[64];
static int top_fd;

static void make_top(void)
{
	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	top_fd = open(top, O_RDONLY | O_DIRECTORY);
	cr_assert(top_fd >= 0);
	cr_assert_eq(mkdirat(top_fd, "ds", 0755), 0);
}

static void remove_top(void)
{
	char command[256];

	close(top_fd);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(index, .init = make_top, .fini = remove_top);

static void make_folders(const char *path)
{
	char part[4096];

	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof part, "%.*s", (int)(p - path), path);
		cr_assert(mkdirat(top_fd, part, 0755) == 0 || errno == EEXIST, "%s", part);
	}
}

static void make_file(const char *path)
{
	make_folders(path);
	int fd = openat(top_fd, path, O_WRONLY | O_CREAT, 0644);
	cr_assert(fd >= 0, "%s", path);
	close(fd);
}

static void make_in_ds(const char *path)
{
	char full[8192];

	snprintf(full, sizeof full, "ds/%s", path);
	make_file(full);
}

static json_t *load_vectors(const char *name)
{
	const char *folder = getenv("CLAIR_VECTORS");
	char file[4096];
	json_error_t error;

	snprintf(file, sizeof file, "%s/%s", folder ? folder : "tests/vectors", name);
	json_t *all = json_load_file(file, 0, &error);
	cr_assert(all, "%s: %s", file, error.text);
	return all;
}

/* Text whose code points are bytes, as the vectors write names that are not UTF-8. */
static void from_latin1(const char *text, char *out)
{
	const unsigned char *p = (const unsigned char *)text;

	while (*p) {
		if (*p < 0x80) {
			*out++ = (char)*p++;
		} else {
			*out++ = (char)((p[0] & 3) << 6 | (p[1] & 0x3f));
			p += 2;
		}
	}
	*out = '\0';
}

static void check_order(const char *index, const json_t *order, bool latin1)
{
	struct clair_catalog *c = NULL;
	uint32_t *ids = NULL, count = 0;
	char *error = NULL, path[4096], expected[4096];

	cr_assert_eq(clair_catalog_walk(top_fd, 2, NULL, NULL, &c), 0);
	uint32_t ds = clair_catalog_find(c, "ds");
	int r = clair_index_make(c, ds, index, &ids, &count, &error);
	cr_assert_eq(r, 0, "%s: %s", index, error ? error : strerror(-r));
	for (uint32_t i = 0; i < count && i < json_array_size(order); i++) {
		const char *text = json_string_value(json_array_get(order, i));
		if (latin1)
			from_latin1(text, expected);
		else
			snprintf(expected, sizeof expected, "%s", text);
		clair_catalog_path(c, ids[i], path, sizeof path);
		/* What a link leads to lies beside the data set and says so. */
		if (!strncmp(path, "out/", 4))
			cr_assert(strstr(expected, "link"), "%s[%u]: %s", index, i, expected);
		else
			cr_assert_str_eq(path + 3, expected, "%s[%u]: %s, not %s", index, i,
					 path + 3, expected);
	}
	cr_assert_eq(count, json_array_size(order), "%s: %u, not %zu", index, count,
		     json_array_size(order));
	free(ids);
	clair_catalog_free(c);
}

/* "NAME -> what", and "NAME (fifo)". */
static bool make_special(const char *text)
{
	char name[4096], full[8192];
	const char *end = strstr(text, " -> ");

	if (!end)
		end = strstr(text, " (fifo)");
	if (!end)
		return false;
	snprintf(name, sizeof name, "%.*s", (int)(end - text), text);
	snprintf(full, sizeof full, "ds/%s", name);
	make_folders(full);
	if (strstr(text, "(fifo)"))
		cr_assert_eq(mkfifoat(top_fd, full, 0644), 0);
	else if (strstr(text, "nowhere"))
		cr_assert_eq(symlinkat("nowhere", top_fd, full), 0);
	else if (!strcmp(name, "b/linkdir"))
		cr_assert_eq(symlinkat("../../out/dir", top_fd, full), 0);
	else if (!strcmp(name, "linkclass"))
		cr_assert_eq(symlinkat("../out/class", top_fd, full), 0);
	else
		cr_assert_eq(symlinkat("../../out/file", top_fd, full), 0);
	return true;
}

Test(index, imagefolder)
{
	json_t *all = load_vectors("torchvision_imagefolder.json"), *name;
	char bytes[4096];
	size_t i;

	make_file("out/dir/o2.png");
	make_file("out/class/o.png");
	make_file("out/class/s/o2.png");
	make_file("out/file");
	json_array_foreach(json_object_get(all, "made"), i, name) {
		if (!make_special(json_string_value(name)))
			make_in_ds(json_string_value(name));
	}
	json_array_foreach(json_object_get(all, "made_latin1"), i, name) {
		from_latin1(json_string_value(name), bytes);
		make_in_ds(bytes);
	}
	check_order("imagefolder", json_object_get(all, "samples_latin1"), true);
	check_order("auto", json_object_get(all, "samples_latin1"), true);
	json_decref(all);
}

static void empty_ds(void)
{
	char command[256];

	snprintf(command, sizeof command, "rm -rf '%s/ds'; mkdir '%s/ds'", top, top);
	cr_assert_eq(system(command), 0);
}

Test(index, hugging_face)
{
	static const struct {
		const char *split, *index;
	} parts[] = { { "train", "hf-imagefolder" },
		      { "validation", "hf-imagefolder-validation" },
		      { "test", "hf-imagefolder-test" } };
	json_t *all = load_vectors("hf_imagefolder.json"), *one, *name;
	size_t i, k, checked = 0;

	json_array_foreach(json_object_get(all, "cases"), i, one) {
		empty_ds();
		json_array_foreach(json_object_get(one, "files"), k, name)
			make_in_ds(json_string_value(name));
		for (k = 0; k < 3; k++) {
			const json_t *split = json_object_get(
				json_object_get(one, "splits"), parts[k].split);
			const json_t *order = json_object_get(split, "order");
			if (!order)
				continue;
			check_order(parts[k].index, order, false);
			checked++;
		}
	}
	cr_assert_geq(checked, 10);
	json_decref(all);
}

Test(index, other_frameworks)
{
	json_t *all = load_vectors("listings.json"), *one, *name;
	size_t i, k;

	json_array_foreach(json_object_get(all, "cases"), i, one) {
		empty_ds();
		json_array_foreach(json_object_get(one, "made"), k, name)
			make_in_ds(json_string_value(name));
		check_order(json_string_value(json_object_get(one, "index")),
			    json_object_get(one, "order"), false);
	}
	cr_assert_geq(i, 5);
	json_decref(all);
}

static void check_text(const char *index, const char *const *paths)
{
	json_t *order = json_array();

	for (; *paths; paths++)
		json_array_append_new(order, json_string(*paths));
	check_order(index, order, false);
	json_decref(order);
}
#define CHECK(index, ...) check_text(index, (const char *const[]){ __VA_ARGS__, NULL })

Test(index, made_up)
{
	make_in_ds("b/x.txt");
	make_in_ds("ab/1.png");
	make_in_ds("a/b2.png");
	make_in_ds("top");
	CHECK("sorted", "a/b2.png", "ab/1.png", "b/x.txt", "top");
	CHECK("basename", "ab/1.png", "a/b2.png", "top", "b/x.txt");
	CHECK("sorted-images", "a/b2.png", "ab/1.png");
	CHECK("datasetfolder", "a/b2.png", "ab/1.png", "b/x.txt");
	/* Labels and names, put together: bx.txt, ab2.png, ab1.png. */
	CHECK("nopfs", "b/x.txt", "a/b2.png", "ab/1.png");
	CHECK("readdir", "top");
}

/* Orders that are the source's own follow its readdir. */
Test(index, readdir)
{
	char names[64][300], name[32];
	unsigned n = 0;

	for (unsigned i = 0; i < 30; i++) {
		snprintf(name, sizeof name, "b/%u.png", i * 7919 % 101);
		make_in_ds(name);
	}
	make_in_ds("a/x.jpg");
	make_in_ds("a/.hidden.jpg");
	strcpy(names[n++], "a/x.jpg");
	int fd = openat(top_fd, "ds/b", O_RDONLY | O_DIRECTORY);
	autoclosedir DIR *dir = fdopendir(fd);
	for (const struct dirent *d; (d = readdir(dir));)
		if (*d->d_name != '.')
			snprintf(names[n++], sizeof names[0], "b/%s", d->d_name);
	cr_assert_eq(n, 31);
	json_t *order = json_array();
	for (unsigned i = 0; i < n; i++)
		json_array_append_new(order, json_string(names[i]));
	unlinkat(top_fd, "ds/a/.hidden.jpg", 0);
	check_order("inaturalist", order, false);
	json_decref(order);
}

static void put_text(const char *name, const char *text)
{
	int fd = openat(top_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

Test(index, lists)
{
	char spec[256];

	make_in_ds("a/1.png");
	make_in_ds("a,2.png");
	make_in_ds("b/3.png");
	put_text("list", "b/3.png\n./a/1.png\r\nds/a,2.png\nb/3.png\n");
	snprintf(spec, sizeof spec, "list:%s/list", top);
	CHECK(spec, "b/3.png", "a/1.png", "a,2.png", "b/3.png");
	put_text("csv", "label,path\n1,\"a,2.png\"\n\"x \"\"y\"\"\",b/3.png\n");
	snprintf(spec, sizeof spec, "list:%s/csv:path", top);
	CHECK(spec, "a,2.png", "b/3.png");
}

Test(index, json_files)
{
	char spec[256];

	make_in_ds("p/7.jpg");
	make_in_ds("p/30.jpg");
	make_in_ds("p/100 \303\251.jpg");
	make_in_ds("p/\360\237\230\200.jpg");
	put_text("coco", "{\"info\": {\"images\": [1, {\"id\": 3}]}, \"images\": ["
			 "{\"id\": 100, \"file_name\": \"p\\/100 \\u00e9.jpg\"},"
			 "{\"file_name\": \"p/30.jpg\", \"x\": {\"id\": 1}, \"id\": 30},"
			 "{\"id\":7,\"file_name\":\"p/7.jpg\"}, "
			 "{\"id\":900,\"file_name\":\"p/\\ud83d\\ude00.jpg\"}],"
			 "\"annotations\": [{\"id\": 1, \"image_id\": 7}]}");
	snprintf(spec, sizeof spec, "coco:%s/coco", top);
	CHECK(spec, "p/7.jpg", "p/30.jpg", "p/100 \303\251.jpg",
	      "p/\360\237\230\200.jpg");
	snprintf(spec, sizeof spec, "json:%s/coco", top);
	CHECK(spec, "p/100 \303\251.jpg", "p/30.jpg", "p/7.jpg",
	      "p/\360\237\230\200.jpg");
	put_text("lines", "{\"image\": \"p/30.jpg\", \"text\": \"a \\\"b\\\"\"}\n"
			  "[\"p/7.jpg\", 1.5e3, null, \"p/30.jpg\"]\n");
	snprintf(spec, sizeof spec, "json:%s/lines", top);
	CHECK(spec, "p/30.jpg", "p/7.jpg");
}

Test(index, mistakes)
{
	struct clair_catalog *c = NULL;
	uint32_t *ids = NULL, count = 0;
	char spec[256];

	make_in_ds("1");
	put_text("list", "1\nno such file\n");
	put_text("coco", "{\"images\": [{\"id\": 1, \"file_name\": \"none\"}]}");
	put_text("bad", "{\"images\": [{\"id\": ");
	char coco[128], bad[128], json[128];
	snprintf(coco, sizeof coco, "coco:%s/coco", top);
	snprintf(bad, sizeof bad, "coco:%s/bad", top);
	snprintf(json, sizeof json, "json:%s/coco", top);
	cr_assert_eq(clair_catalog_walk(top_fd, 2, NULL, NULL, &c), 0);
	snprintf(spec, sizeof spec, "list:%s/list", top);
	const char *const wrong[] = { "no-such-order", "list:/nowhere/at/all", spec, coco, bad, json };
	for (int i = 0; i < 6; i++) {
		autofree char *error = NULL;
		cr_assert_eq(clair_index_make(c, 1, wrong[i], &ids, &count, &error), -EINVAL);
		cr_assert(error && strstr(error, "index="), "%s", wrong[i]);
		cr_assert_null(strchr(error, '\n'));
	}
	clair_catalog_free(c);
}

/* Links that lead back make neither a loop nor a wrong order. */
Test(index, links_that_lead_back)
{
	make_in_ds("a/1.png");
	make_in_ds("b/2.png");
	cr_assert_eq(symlinkat("..", top_fd, "ds/a/up"), 0);
	cr_assert_eq(symlinkat(".", top_fd, "ds/b/here"), 0);
	CHECK("imagefolder", "a/1.png", "b/2.png");
}
