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
#include "sampler.h"

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

/* --- opens ---------------------------------------------------------------------------------- */

static char opens_file[96];

static uint32_t id_of(const char *path)
{
	uint32_t id = clair_catalog_find(catalog, path);

	cr_assert_neq(id, CLAIR_NO_ID);
	return id;
}

/* Two passes over a few files, and one that is not over. */
static void save_opens(void)
{
	char command[200];
	struct clair_opens o;
	static const char *const passes[] = { "xyzzx", "yyx", "zx" };

	snprintf(opens_file, sizeof opens_file, "%s/order.opens", top);
	snprintf(command, sizeof command, "touch '%s/source/train/a/y' '%s/source/train/z'", top,
		 top);
	cr_assert_eq(system(command), 0);
	clair_catalog_free(catalog);
	catalog = walk();
	uint32_t ids[3] = { id_of("train/a/x"), id_of("train/a/y"), id_of("train/z") };
	uint32_t pass[3][8];
	for (unsigned p = 0; p < 3; p++)
		for (unsigned i = 0; passes[p][i]; i++)
			pass[p][i] = ids[passes[p][i] - 'x'];
	cr_assert_eq(clair_opens_init(&o, catalog), 0);
	cr_assert_eq(clair_opens_pack(&o, pass[0], 5), 0);
	cr_assert_eq(clair_opens_pack(&o, pass[1], 3), 0);
	struct clair_pass newest = { .ids = pass[2], .count = 2 };
	cr_assert_eq(clair_remember_save_opens(opens_file, &o, &newest), 0);
	clair_opens_finish(&o);
}

static void check_opens(const struct clair_remembered *m)
{
	static const unsigned counts[] = { 5, 3, 2 };
	uint32_t ids[3][5];

	cr_assert_eq(m->passes, 3);
	cr_assert_eq(m->samples, 3);
	cr_expect_eq(m->opens, 10);
	cr_expect_eq(m->catalog, clair_catalog_hash(catalog));
	for (unsigned p = 0; p < 3; p++) {
		cr_assert_eq(m->counts[p], counts[p]);
		cr_assert_eq(clair_remembered_pass(m, p, ids[p]), 0);
	}
	/* xyzzx, yyx, zx */
	uint32_t x = ids[0][0], y = ids[0][1], z = ids[0][2];
	cr_expect(x != y && y != z && x != z && x < 3 && y < 3 && z < 3);
	cr_expect(ids[0][3] == z && ids[0][4] == x);
	cr_expect(ids[1][0] == y && ids[1][1] == y && ids[1][2] == x);
	cr_expect(ids[2][0] == z && ids[2][1] == x);
}

Test(remember, opens_that_are_saved_are_loaded)
{
	struct clair_remembered *m;

	cr_expect_eq(clair_remember_load_opens("/nonexistent/order.opens", &m), -ENOENT);
	save_opens();
	cr_assert_eq(clair_remember_load_opens(opens_file, &m), 0);
	check_opens(m);
	clair_remembered_free(m);
	clair_remembered_free(NULL);
}

/* As an order: its passes are the epochs, and go on. */
Test(remember, opens_as_an_order)
{
	struct clair_words words = { 0 };
	struct clair_order_params params = { .n = 3, .world = 1, .words = &words };
	struct clair_indices epoch = { 0 };
	struct clair_sampler *s;
	char *error = NULL;
	static const size_t counts[] = { 5, 3, 2, 2 };

	save_opens();
	cr_expect_eq(clair_sampler_new("remembered", &params, NULL, NULL, &s, &error), -EINVAL);
	cr_expect(error && strstr(error, "opens="));
	free(error);
	error = NULL;
	clair_words_set(&words, "opens", opens_file);
	cr_assert_eq(clair_sampler_new("remembered", &params, NULL, NULL, &s, &error), 0);
	for (unsigned e = 0; e < 4; e++) {
		cr_assert_eq(clair_sampler_epoch(s, e, 0, &epoch), 0);
		cr_expect_eq(epoch.count, counts[e]);
	}
	clair_sampler_free(s);
	params.n = 4;
	cr_expect_eq(clair_sampler_new("remembered", &params, NULL, NULL, &s, &error), -EINVAL);
	cr_expect(error && strstr(error, "other data"), "%s", error);
	free(error);
	clair_indices_finish(&epoch);
	clair_words_finish(&words);
}

Test(remember, opens_with_damage_at_every_byte)
{
	static const unsigned char masks[] = { 0x01, 0x80, 0xff };
	unsigned char bytes[4096];
	struct clair_remembered *m;

	save_opens();
	autofclose FILE *f = fopen(opens_file, "r+e");
	cr_assert(f);
	size_t size = fread(bytes, 1, sizeof bytes, f);
	cr_assert(size > 40 && size < sizeof bytes);
	for (size_t at = 0; at < size; at++) {
		for (size_t k = 0; k < sizeof masks; k++) {
			unsigned char was = bytes[at];
			bytes[at] ^= masks[k];
			rewind(f);
			cr_assert(fwrite(bytes, 1, size, f) == size && fflush(f) == 0);
			cr_assert_eq(clair_remember_load_opens(opens_file, &m), -EBADMSG,
				     "byte %zu", at);
			bytes[at] = was;
		}
	}
	for (size_t cut = 0; cut < size; cut++) {
		rewind(f);
		cr_assert(fwrite(bytes, 1, size, f) == size && fflush(f) == 0);
		cr_assert_eq(ftruncate(fileno(f), (off_t)cut), 0);
		cr_assert_eq(clair_remember_load_opens(opens_file, &m), -EBADMSG, "cut at %zu",
			     cut);
	}
}
