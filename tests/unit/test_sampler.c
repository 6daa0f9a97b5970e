/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sampler.h"

static struct clair_words words;

static struct clair_sampler *open_sampler(const char *name, uint32_t n, uint32_t world,
					  char **error, int *r)
{
	struct clair_order_params params = { .n = n, .world = world, .words = &words };
	struct clair_sampler *sampler = NULL;

	*error = NULL;
	*r = clair_sampler_new(name, &params, NULL, NULL, &sampler, error);
	return sampler;
}

/* Every family says what it is, and no two have one name. */
Test(sampler, listing)
{
	const struct clair_family *f;
	size_t count = 0;

	for (; (f = clair_family_at(count)); count++) {
		cr_assert(f->name && *f->name);
		cr_assert_not_null(f->help, "%s", f->name);
		cr_assert(*f->help && !strchr(f->help, '\n'), "%s", f->name);
		cr_assert_not_null(f->versions, "%s", f->name);
		cr_assert_not_null(f->words, "%s", f->name);
		cr_assert_eq(clair_family_find(f->name), f, "%s is there twice", f->name);
		for (const struct clair_family_word *w = f->words; w->name; w++) {
			cr_assert(w->fallback && w->help && *w->help, "%s %s", f->name, w->name);
			for (const struct clair_family_word *v = f->words; v != w; v++)
				cr_assert(strcmp(v->name, w->name) != 0, "%s: %s is there twice",
					  f->name, w->name);
		}
	}
	cr_assert_gt(count, 20);
	cr_assert_null(clair_family_at(count + 1));
	cr_assert_null(clair_family_find("nothing"));
}

/* The names that scripts rely on. */
Test(sampler, names)
{
	static const char *const names[] = {
		"torch-distributed", "torch-random",	"torch-default",  "sequential",
		"numpy-randomstate", "numpy-generator", "python-shuffle", "accelerate",
		"lightning",	     "timm",		"detectron2",	  "mmengine",
		"horovod",	     "tf-shuffle",	"keras-directory", "grain",
		"dali-file",	     "nopfs",
	};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		cr_assert_not_null(clair_family_find(names[i]), "%s", names[i]);
}

/* What every family does with its defaults: it opens or names its mistake; its indices are
 * samples; an epoch comes out the same when it is asked for again after another. */
Test(sampler, any_family)
{
	static const uint32_t sizes[] = { 0, 1, 2, 37 };
	const struct clair_family *f;

	for (size_t i = 0; (f = clair_family_at(i)); i++)
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
			struct clair_indices a = { 0 }, b = { 0 };
			char *error;
			int r;
			struct clair_sampler *s = open_sampler(f->name, sizes[k], 3, &error, &r);

			if (r < 0) {
				cr_assert(r == -EINVAL && error && !strchr(error, '\n'),
					  "%s n=%u: %d", f->name, sizes[k], r);
				free(error);
				continue;
			}
			cr_assert_eq(clair_sampler_family(s), f);
			r = clair_sampler_epoch(s, 2, 1, &a);
			cr_assert_eq(r, 0, "%s n=%u: %d", f->name, sizes[k], r);
			cr_assert_eq(clair_sampler_epoch(s, 0, 2, &b), 0);
			cr_assert_eq(clair_sampler_epoch(s, 2, 1, &b), 0);
			cr_assert(a.count == b.count &&
					  (!a.count ||
					   !memcmp(a.at, b.at, a.count * sizeof *a.at)),
				  "%s n=%u: an epoch does not come again", f->name, sizes[k]);
			clair_indices_finish(&a);
			clair_indices_finish(&b);
			clair_sampler_free(s);
		}
}

Test(sampler, mistakes)
{
	char *error;
	int r;

	cr_assert_null(open_sampler("torch-distribted", 10, 1, &error, &r));
	cr_assert(r == -EINVAL && strstr(error, "torch-distribted") && !strchr(error, '\n'));
	free(error);
	clair_words_set(&words, "sed", "42");
	cr_assert_null(open_sampler("torch-distributed", 10, 1, &error, &r));
	cr_assert(r == -EINVAL && strstr(error, "sed=42") && !strchr(error, '\n'));
	free(error);
	clair_words_unset(&words, "sed");
	clair_words_set(&words, "seed", "forty");
	cr_assert_null(open_sampler("torch-distributed", 10, 1, &error, &r));
	cr_assert(r == -EINVAL && strstr(error, "forty") && !strchr(error, '\n'));
	free(error);
	clair_words_finish(&words);
	cr_assert_null(open_sampler("list:/nonexistent/list", 10, 1, &error, &r));
	cr_assert(r == -EINVAL && strstr(error, "/nonexistent/list"));
	free(error);
}

static void check(struct clair_sampler *s, uint64_t epoch, uint32_t rank, const char *want)
{
	struct clair_indices got = { 0 };
	char text[200] = "";

	cr_assert_eq(clair_sampler_epoch(s, epoch, rank, &got), 0);
	for (size_t i = 0; i < got.count; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%s%u", i ? " " : "",
			 got.at[i]);
	cr_assert_str_eq(text, want);
	clair_indices_finish(&got);
}

Test(sampler, sequential)
{
	char *error;
	int r;
	struct clair_sampler *s = open_sampler("sequential", 5, 1, &error, &r);

	check(s, 0, 0, "0 1 2 3 4");
	check(s, 9, 0, "0 1 2 3 4");
	clair_sampler_free(s);
	s = open_sampler("sequential", 5, 3, &error, &r);
	check(s, 0, 0, "0 3");
	check(s, 0, 2, "2 0"); /* padded */
	clair_sampler_free(s);
	clair_words_set(&words, "drop_last", "1");
	s = open_sampler("sequential", 5, 3, &error, &r);
	check(s, 0, 2, "2");
	clair_sampler_free(s);
	clair_words_set(&words, "take", "stride");
	s = open_sampler("sequential", 5, 3, &error, &r);
	check(s, 0, 1, "1 4");
	check(s, 0, 2, "2");
	clair_sampler_free(s);
	clair_words_finish(&words);
}

/* An order that somebody else computed. */
Test(sampler, list)
{
	char file[] = "/tmp/clair-list-XXXXXX", name[100], *error;
	static const char text[] = "2\n0\n1\n\n1\n1\n";
	int fd = mkstemp(file), r;

	cr_assert_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
	snprintf(name, sizeof name, "list:%s", file);
	struct clair_sampler *s = open_sampler(name, 3, 1, &error, &r);
	cr_assert_eq(r, 0, "%s", error);
	check(s, 0, 0, "2 0 1");
	check(s, 1, 0, "1 1");
	check(s, 5, 0, "1 1"); /* the last one again */
	clair_sampler_free(s);
	s = open_sampler(name, 3, 2, &error, &r);
	check(s, 0, 0, "2 1");
	check(s, 0, 1, "0");
	clair_sampler_free(s);
	cr_assert_null(open_sampler(name, 2, 1, &error, &r)); /* 2 is no sample */
	cr_assert(r == -EINVAL && strstr(error, "line 1"), "%s", error);
	free(error);
	close(fd);
	unlink(file);
}

Test(sampler, indices)
{
	struct clair_indices list = { 0 };

	for (uint32_t i = 0; i < 10000; i++)
		cr_assert_eq(clair_indices_append(&list, i), 0);
	cr_assert_eq(clair_indices_reserve(&list, 20000), 0);
	cr_assert(list.count == 10000 && list.room >= 20000);
	for (uint32_t i = 0; i < 10000; i++)
		cr_assert_eq(list.at[i], i);
	clair_indices_finish(&list);
	cr_assert(!list.at && !list.count);
}
