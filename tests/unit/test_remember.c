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
#include "options.h"
#include "remember.h"

static char top[64], file[96];
static struct clair_catalog *catalog;

static struct clair_catalog *walk(void)
{
	char path[96];
	struct clair_catalog *c;

	snprintf(path, sizeof path, "%s/source", top);
	autoclose int fd = open(path, O_RDONLY | O_DIRECTORY);
	cr_assert_eq(clair_catalog_walk(fd, 1, NULL, NULL, &c), 0);
	return c;
}

static void begin(void)
{
	char command[200];

	strcpy(top, "/tmp/clairfs-test-XXXXXX");
	cr_assert(mkdtemp(top));
	snprintf(file, sizeof file, "%s/order.json", top);
	snprintf(command, sizeof command,
		 "mkdir -p '%s/source/train/a' && echo 1 >'%s/source/train/a/x'", top, top);
	cr_assert_eq(system(command), 0);
	catalog = walk();
}

static void end(void)
{
	char command[128];

	clair_catalog_free(catalog);
	snprintf(command, sizeof command, "rm -rf '%s'", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(remember, .init = begin, .fini = end, .timeout = 60);

static void save(void)
{
	struct clair_words words = { 0 };

	clair_words_set(&words, "sampler", "torch-distributed");
	clair_words_set(&words, "seed", "42");
	clair_words_set(&words, "how", "found");
	cr_assert_eq(clair_remember_save(file, catalog, clair_catalog_find(catalog, "train"),
					 &words),
		     0);
	clair_words_finish(&words);
}

static int load(uint32_t *folder, struct clair_words *words)
{
	*folder = CLAIR_NO_ID;
	*words = (struct clair_words){ 0 };
	return clair_remember_load(file, catalog, folder, words);
}

static size_t contents(char *text, size_t size)
{
	autofclose FILE *f = fopen(file, "re");

	cr_assert(f);
	return fread(text, 1, size, f);
}

static void put(const char *text, size_t size)
{
	autofclose FILE *f = fopen(file, "we");

	cr_assert_eq(fwrite(text, 1, size, f), size);
}

Test(remember, what_is_saved_is_loaded)
{
	struct clair_words words;
	uint32_t folder;

	cr_expect_eq(load(&folder, &words), -ENOENT);
	save();
	save(); /* replaces it */
	cr_assert_eq(load(&folder, &words), 0);
	cr_expect_eq(folder, clair_catalog_find(catalog, "train"));
	cr_expect_str_eq(clair_words_get(&words, "sampler"), "torch-distributed");
	cr_expect_str_eq(clair_words_get(&words, "seed"), "42");
	cr_expect_null(clair_words_get(&words, "how"));
	clair_words_finish(&words);
}

Test(remember, of_other_data)
{
	struct clair_words words;
	char command[128];
	uint32_t folder;

	save();
	snprintf(command, sizeof command, "echo 22 >'%s/source/train/a/y'", top);
	cr_assert_eq(system(command), 0);
	clair_catalog_free(catalog);
	catalog = walk();
	cr_expect_eq(load(&folder, &words), -EBADMSG);
	cr_expect_eq(words.count, 0);
}

/* Whatever became of a byte, what is loaded is words of an order, or nothing. */
static void check_damaged(void)
{
	struct clair_words words;
	uint32_t folder;
	int r = load(&folder, &words);

	if (r < 0) {
		cr_assert_eq(r, -EBADMSG);
		cr_assert_eq(words.count, 0);
		return;
	}
	cr_assert_lt(folder, clair_catalog_count(catalog));
	for (size_t i = 0; i < words.count; i++)
		cr_assert(clair_options_is_order_word(words.items[i].key), "%s",
			  words.items[i].key);
	clair_words_finish(&words);
}

Test(remember, damage_at_every_byte)
{
	static const unsigned char masks[] = { 0x01, 0x02, 0x20, 0x80, 0xff };
	char text[4096];

	save();
	size_t size = contents(text, sizeof text);
	cr_assert(size > 40 && size < sizeof text);
	for (size_t at = 0; at < size; at++) {
		put(text, at);
		check_damaged();
		for (size_t k = 0; k < sizeof masks; k++) {
			char was = text[at];
			text[at] = (char)(was ^ (char)masks[k]);
			put(text, size);
			check_damaged();
			text[at] = was;
		}
	}
}

Test(remember, words_that_it_must_not_set)
{
	static const char *const words[] = { "\"cache\": \"/tmp\"", "\"seed\": 42", "\"\": \"x\"",
					     "\"allow_other\": \"1\"" };
	char text[1024];

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		struct clair_words out;
		uint32_t folder;
		int n = snprintf(text, sizeof text,
				 "{\"version\": 1, \"catalog\": \"%016llx\", \"folder\": \"train\","
				 " \"words\": {%s}}",
				 (unsigned long long)clair_catalog_hash(catalog), words[i]);
		put(text, (size_t)n);
		cr_expect_eq(load(&folder, &out), -EBADMSG, "%s", words[i]);
		cr_expect_eq(out.count, 0);
	}
}

Test(remember, where_it_is_kept)
{
	char path[4200], expected[200];

	setenv("XDG_CACHE_HOME", top, 1);
	cr_assert_eq(clair_remember_path(catalog, path, sizeof path), 0);
	snprintf(expected, sizeof expected, "%s/clairfs/order-%016llx.json", top,
		 (unsigned long long)clair_catalog_hash(catalog));
	cr_expect_str_eq(path, expected);
	cr_expect_eq(clair_remember_path(catalog, path, 20), -ENAMETOOLONG);
	setenv("XDG_CACHE_HOME", "not/absolute", 1);
	setenv("HOME", top, 1);
	cr_assert_eq(clair_remember_path(catalog, path, sizeof path), 0);
	cr_expect_eq(strncmp(path, top, strlen(top)), 0);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	cr_expect_eq(clair_remember_path(catalog, path, sizeof path), -ENOENT);
}
