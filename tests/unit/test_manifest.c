/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "manifest.h"

#define FILES 60
/* The file that a manifest names in its line I. */
#define NAMED(i) (((i) * 7 + 3) % FILES)

static char top[64];
static int source = -1;
static struct clair_catalog *catalog;

static void begin(void)
{
	char name[64];

	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	source = open(top, O_RDONLY | O_DIRECTORY);
	cr_assert(mkdirat(source, "a", 0755) == 0 && mkdirat(source, "b", 0755) == 0 &&
		  mkdirat(source, "lists", 0755) == 0);
	for (unsigned i = 0; i < FILES; i++) {
		snprintf(name, sizeof name, "%s/%03u.jpg", i % 2 ? "a" : "b", i);
		close(openat(source, name, O_WRONLY | O_CREAT, 0644));
		/* A name that is in both folders, and one of another kind. */
		snprintf(name, sizeof name, "%s/same%u.jpg", i % 2 ? "a" : "b", i / 2);
		close(openat(source, name, O_WRONLY | O_CREAT, 0644));
	}
}

static void end(void)
{
	char command[128];

	clair_catalog_free(catalog);
	catalog = NULL;
	close(source);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(manifest, .init = begin, .fini = end, .timeout = 60);

static FILE *create(const char *name)
{
	FILE *f = fdopen(openat(source, name, O_WRONLY | O_CREAT | O_TRUNC, 0644), "w");

	cr_assert(f);
	return f;
}

static void walk(void)
{
	clair_catalog_free(catalog);
	cr_assert_eq(clair_catalog_walk(source, 1, NULL, NULL, &catalog), 0);
}

static uint32_t file(unsigned i)
{
	char name[64];

	snprintf(name, sizeof name, "%s/%03u.jpg", i % 2 ? "a" : "b", i);
	uint32_t id = clair_catalog_find(catalog, name);
	cr_assert_neq(id, CLAIR_NO_ID);
	return id;
}

static int read_file(void *arg, uint32_t id, char **text, size_t *size)
{
	char path[256];

	(void)arg;
	clair_catalog_path(catalog, id, path, sizeof path);
	autoclose int fd = openat(source, path, O_RDONLY);
	*size = clair_catalog_entry(catalog, id)->size;
	*text = calloc(1, *size + 1);
	return fd >= 0 && read(fd, *text, *size) == (ssize_t)*size ? 0 : -EIO;
}

static void find(struct clair_manifests *m)
{
	uint32_t opened[20];

	walk();
	for (unsigned i = 0; i < 20; i++)
		opened[i] = file(NAMED(i * 3 % 50));
	cr_assert_eq(clair_manifests_find(catalog, read_file, NULL, opened, 20, m), 0);
}

/* The list of COLUMN, with COUNT files as NAMED has them. */
static void check(const struct clair_manifests *m, const char *column, unsigned count)
{
	for (size_t i = 0; i < m->count; i++) {
		if (strcmp(m->lists[i].column, column))
			continue;
		cr_assert_eq(m->lists[i].count, count, "%s: %u", column, m->lists[i].count);
		for (unsigned k = 0; k < count; k++)
			cr_assert_eq(m->lists[i].ids[k], file(NAMED(k)), "%s: %u", column, k);
		return;
	}
	cr_assert_fail("no list %s", column);
}

static const char *folder_of(unsigned i)
{
	return NAMED(i) % 2 ? "a" : "b";
}

Test(manifest, tables)
{
	static const char dividers[] = ",\t ";
	static const char *const names[] = { "lists/t.csv", "lists/t.tsv", "lists/wav.scp" };
	struct clair_manifests m;

	for (unsigned k = 0; k < 3; k++) {
		FILE *f = create(names[k]);
		char d = dividers[k];
		fprintf(f, "id%cpath%clabel\n", d, d);
		for (unsigned i = 0; i < 50; i++)
			fprintf(f, "%u%c/data/of/others/%s/%03u.jpg%c%u\r\n", i, d, folder_of(i),
				NAMED(i), d, i % 3);
		fclose(f);
		find(&m);
		cr_assert_eq(m.count, 1);
		check(&m, "1", 50);
		clair_manifests_finish(&m);
		unlinkat(source, names[k], 0);
	}
}

Test(manifest, quoted_fields)
{
	struct clair_manifests m;
	FILE *f = create("t.csv");

	for (unsigned i = 0; i < 50; i++)
		fprintf(f, "\"a \"\"text\"\", with a comma\",\"%s/%03u.jpg\"\n", folder_of(i),
			NAMED(i));
	fclose(f);
	find(&m);
	check(&m, "1", 50);
	clair_manifests_finish(&m);
}

Test(manifest, names_without_an_ending)
{
	struct clair_manifests m;
	FILE *f = create("lists/train.txt");

	for (unsigned i = 0; i < 50; i++)
		fprintf(f, "%03u\n", NAMED(i));
	fclose(f);
	find(&m);
	check(&m, "0", 50);
	clair_manifests_finish(&m);
}

Test(manifest, json_lines)
{
	struct clair_manifests m;
	FILE *f = create("train.jsonl");

	for (unsigned i = 0; i < 50; i++)
		fprintf(f, "{\"text\": \"a \\\"b\\\" c\", \"audio\": \".\\/%s\\/%03u.jpg\"}\n",
			folder_of(i), NAMED(i));
	fclose(f);
	find(&m);
	check(&m, "audio", 50);
	clair_manifests_finish(&m);
}

/* Pictures in some order with ids in another one; the last five have no annotation. */
Test(manifest, coco)
{
	struct clair_manifests m;
	FILE *f = create("lists/instances.json");

	fprintf(f, "{\"info\": {\"year\": 2017, \"id\": 7}, \"images\": [");
	for (unsigned i = 0; i < 50; i++) {
		unsigned k = (i * 11 + 5) % 50; /* the Kth by its id */
		fprintf(f, "%s{\"license\": 1, \"file_name\": \"%03u.jpg\", \"id\": %u}",
			i ? "," : "", NAMED(k), 100 + k);
	}
	fprintf(f, "], \"annotations\": [");
	for (unsigned i = 0; i < 90; i++)
		fprintf(f, "%s{\"bbox\": [0.5, 1, 2, 3], \"image_id\": %u, \"id\": %u}",
			i ? "," : "", 100 + i % 45, i);
	fprintf(f, "]}");
	fclose(f);
	find(&m);
	cr_assert_eq(m.count, 4); /* as they stand, by id, both without the last five */
	check(&m, "id", 50);
	check(&m, "annotated id", 45);
	clair_manifests_finish(&m);
}

/* Names that could be several files, or none, say nothing; a list of others is none. */
Test(manifest, what_is_no_list)
{
	struct clair_manifests m;
	FILE *f = create("same.txt");

	for (unsigned i = 0; i < 30; i++)
		fprintf(f, "same%u.jpg\n", i);
	fclose(f);
	f = create("labels.csv");
	for (unsigned i = 0; i < 50; i++)
		fprintf(f, "%u.25,cat and dog,nothing/%03u.png\n", i, i);
	fclose(f);
	f = create("val.txt");
	for (unsigned i = 0; i < 30; i++)
		fprintf(f, "a/same%u.jpg\n", i);
	fclose(f);
	find(&m);
	cr_expect_eq(m.count, 0);
	clair_manifests_finish(&m);
}

/* Whatever stands in a file. */
Test(manifest, garbage)
{
	static const char *const names[] = { "g.json", "g.jsonl", "g.csv", "g.txt", "g.tsv" };
	static const char bits[] = "\"{}[]:,\\\\/\n\t x1.a0\0id";
	struct clair_manifests m;
	uint32_t x = 9;

	for (unsigned round = 0; round < 20; round++) {
		for (unsigned k = 0; k < 5; k++) {
			FILE *f = create(names[k]);
			for (unsigned i = 0; i < 3000; i++) {
				x = x * 1664525u + 1013904223u;
				fputc(bits[(x >> 16) % (sizeof bits - 1)], f);
				if (x >> 28 == 3)
					fprintf(f, "\"%s/%03u.jpg\"", folder_of(i), NAMED(i));
			}
			fclose(f);
		}
		find(&m);
		for (size_t i = 0; i < m.count; i++)
			for (uint32_t k = 0; k < m.lists[i].count; k++)
				cr_assert_lt(m.lists[i].ids[k], clair_catalog_count(catalog));
		clair_manifests_finish(&m);
	}
}
