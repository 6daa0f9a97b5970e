/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"

static char folder[64], file[128], spec[160], text[1 << 20];

static void begin(void)
{
	strcpy(folder, "/tmp/clairfs-log-XXXXXX");
	cr_assert(mkdtemp(folder));
	snprintf(file, sizeof file, "%s/log", folder);
}

static void end(void)
{
	unlink(file);
	rmdir(folder);
}

TestSuite(log, .init = begin, .fini = end);

static void to_file(const char *level)
{
	snprintf(spec, sizeof spec, "%s:%s", level, file);
	cr_assert_eq(clair_log_setup(spec), 0);
}

/* What is in the file; the number of its lines. */
static unsigned lines(void)
{
	FILE *f = fopen(file, "r");
	unsigned n = 0;

	cr_assert(f);
	size_t size = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[size] = '\0';
	for (const char *p = text; *p; p++)
		n += *p == '\n';
	return n;
}

Test(log, levels)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };

	cr_expect(clair_log_wants(CLAIR_WARNING) && !clair_log_wants(CLAIR_INFO),
		  "warning is the default");
	for (int i = 0; i < 4; i++) {
		unlink(file);
		to_file(names[i]);
		for (int level = CLAIR_ERROR; level <= CLAIR_DEBUG; level++)
			cr_expect_eq(clair_log_wants(level), level <= i);
		log_error("one");
		log_warning("two");
		log_info("three");
		log_debug("four");
		cr_expect_eq(lines(), (unsigned)i + 1);
		cr_expect_eq(!!strstr(text, "four"), i == 3);
	}
}

Test(log, mistakes_change_nothing)
{
	static const char *const bad[] = { "", "warn", "warnings", "WARNING", "4", ":x" };

	to_file("debug");
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(clair_log_setup(bad[i]), -EINVAL, "%s", bad[i]);
	cr_expect_eq(clair_log_setup("error:/nosuch/folder/log"), -ENOENT);
	log_debug("still here");
	cr_expect_eq(lines(), 1);
}

/* DATE TIME clairfs: LEVEL: …, with the errno's text, one line however long; errno stays. */
Test(log, lines_of_a_file)
{
	char *path = malloc(10000);
	int y, mo, d, h, mi, s, n = 0;

	memset(path, 'x', 9999);
	path[9999] = '\0';
	to_file("info");
	errno = ENOSPC;
	log_warning("%s: %m; goes on", "a/b");
	cr_expect_eq(errno, ENOSPC);
	cr_assert_eq(lines(), 1);
	cr_assert_eq(sscanf(text, "%d-%d-%d %d:%d:%d %n", &y, &mo, &d, &h, &mi, &s, &n), 6);
	cr_expect_str_eq(text + n, "clairfs: warning: a/b: No space left on device; goes on\n");
	log_info("mounted");
	cr_assert_eq(lines(), 2);
	cr_expect(strstr(text, " clairfs: mounted\n"), "info has no level: %s", text);
	log_error("%s", path);
	cr_assert_eq(lines(), 3, "a long one is cut, and ends its line");
	cr_expect(strstr(text, "clairfs: error: xxx"));
	/* Appended to. */
	to_file("info");
	log_info("again");
	cr_expect_eq(lines(), 4);
	free(path);
}

#define THREADS 4
#define EACH 500

static void *writer(void *arg)
{
	for (int i = 0; i < EACH; i++)
		log_warning("thread %d line %d end", *(int *)arg, i);
	return NULL;
}

Test(log, threads_do_not_mix)
{
	pthread_t threads[THREADS];
	int number[THREADS];

	to_file("warning");
	for (int i = 0; i < THREADS; i++) {
		number[i] = i;
		cr_assert_eq(pthread_create(&threads[i], NULL, writer, &number[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	cr_assert_eq(lines(), THREADS * EACH);
	for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		int t, i, n = 0;
		const char *at = strstr(line, "thread ");
		cr_assert(at && sscanf(at, "thread %d line %d end%n", &t, &i, &n) == 2 && n &&
				  !at[n], "%s", line);
	}
}
