/* SPDX-License-Identifier: BSD-3-Clause */
#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "options.h"

static struct clair_options o;

static void set_up(void)
{
	cr_assert_eq(clair_options_init(&o), 0);
}

static void tear_down(void)
{
	clair_options_finish(&o);
}

TestSuite(options, .init = set_up, .fini = tear_down);

static void add(const char *text)
{
	char *error = NULL;

	cr_assert_eq(clair_options_add(&o, text, &error), 0, "%s: %s", text, error);
	cr_assert_null(error);
}

static const char *word(const char *key)
{
	const char *value = clair_words_get(&o.order, key);

	return value ? value : "(none)";
}

Test(options, words)
{
	add("seed=42,sampler=torch-distributed,world=4,ranks=0,2,batch=8");
	add("ram=2G,staging=1.5M,threads=3,allow_other,fsname=x,ro,keep=arena,seed=-1");
	cr_assert_str_eq(word("seed"), "-1");
	cr_assert_str_eq(word("ranks"), "0,2");
	cr_assert_str_eq(word("batch"), "8");
	cr_assert_eq(o.ram, 2ull << 30);
	cr_assert_eq(o.staging, 3ull << 19);
	cr_assert_eq(o.threads, 3);
	cr_assert_eq(o.keep, CLAIR_KEEP_ARENA);
	cr_assert(o.read_only && !o.writable);
	cr_assert_str_eq(o.fuse, "allow_other,fsname=x");
	add("rank=3,,ro=0");
	cr_assert_str_eq(word("ranks"), "3");
	cr_assert_not(o.read_only);
	add("ro,rw,nofail,x-systemd.automount");
	cr_assert_not(o.read_only);
}

Test(options, files_are_absolute)
{
	char expected[8192], here[4096];

	cr_assert(getcwd(here, sizeof here));
	add("cache=/ssd/c/:200G,cache=rel:5M,catalog=./c,sampler=list:order,log=debug:l");
	cr_assert_eq(o.cache_count, 2);
	cr_assert_str_eq(o.caches[0].path, "/ssd/c");
	cr_assert_eq(o.caches[0].bytes, 200ull << 30);
	snprintf(expected, sizeof expected, "%s/rel", here);
	cr_assert_str_eq(o.caches[1].path, expected);
	snprintf(expected, sizeof expected, "%s/c", here);
	cr_assert_str_eq(o.catalog, expected);
	snprintf(expected, sizeof expected, "list:%s/order", here);
	cr_assert_str_eq(word("sampler"), expected);
	snprintf(expected, sizeof expected, "debug:%s/l", here);
	cr_assert_str_eq(o.log, expected);
	add("log=info");
	cr_assert_str_eq(o.log, "info");
}

Test(options, commas_in_values)
{
	add("fsname=a\\,b,stream=train:ranks=1,3;batch=2,world=8");
	cr_assert_str_eq(o.fuse, "fsname=a,b");
	cr_assert_str_eq(clair_words_get(&o.streams[0].words, "ranks"), "1,3");
	cr_assert_str_eq(clair_words_get(&o.streams[0].words, "batch"), "2");
	cr_assert_str_eq(word("world"), "8");
}

Test(options, streams)
{
	struct clair_words words = { 0 };

	add("seed=1,batch=4");
	add("stream=/train/:seed=7;batch=2,stream=./val:sampler=sequential");
	add("stream=train:epochs=3");
	cr_assert_eq(o.stream_count, 2);
	cr_assert_str_eq(o.streams[0].path, "train");
	cr_assert_str_eq(o.streams[1].path, "val");
	cr_assert_eq(clair_options_stream_words(&o, "train", &words), 0);
	cr_assert_str_eq(clair_words_get(&words, "seed"), "7");
	cr_assert_str_eq(clair_words_get(&words, "epochs"), "3");
	clair_words_finish(&words);
	cr_assert_eq(clair_options_stream_words(&o, "val", &words), 0);
	cr_assert_str_eq(clair_words_get(&words, "batch"), "4");
	clair_words_finish(&words);
	/* Words of another sampler's do not concern it. */
	add("sampler=torch-default,skip=3");
	cr_assert_eq(clair_options_stream_words(&o, "val", &words), 0);
	cr_assert_null(clair_words_get(&words, "skip"));
	clair_words_finish(&words);
	cr_assert_eq(clair_options_stream_words(&o, "train", &words), 0);
	cr_assert_str_eq(clair_words_get(&words, "skip"), "3");
	clair_words_finish(&words);
}

/* Each is refused with one line that names the word. */
Test(options, mistakes)
{
	static const char *const wrong[] = {
		"seed=x",	"seed=",	  "seed",	  "world=0",
		"world=-1",	"batch=1.5",	  "shuffle=2",	  "epochs=0",
		"ram=lots",	"ram=10%%",	  "ram=-1",	  "cache=/x",
		"cache=/x:10%", "cache=:1G",	  "threads=9999", "sampler=nope",
		"index=nope",	"keep=some",	  "log=loud",	  "config=/no/such/file",
		"writable=1",	"bogus",	  "bogus=1",	  "stream=train",
		"ro=perhaps",	"stream=t:seed",  "stream=t:ram=1G", "staging=1X",
		"free=",	"cache=/x:0",
	};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		autofree char *error = NULL, *name = strdup(wrong[i]);
		name[strcspn(name, "=")] = '\0';
		cr_assert_eq(clair_options_add(&o, wrong[i], &error), -EINVAL, "%s",
			     wrong[i]);
		cr_assert(error && strstr(error, name), "%s: %s", wrong[i], error);
		cr_assert_null(strchr(error, '\n'), "%s", wrong[i]);
	}
}

Test(options, mistakes_together)
{
	static const char *const wrong[] = { "world=2,ranks=2", "ranks=1", "ranks=1-0,world=4",
					     "ranks=a", "cache=/x:1G,cache=/x/:2G",
					     "world=2,stream=t:ranks=5" };

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct clair_options p;
		autofree char *error = NULL;
		cr_assert_eq(clair_options_init(&p), 0);
		cr_assert_eq(clair_options_add(&p, wrong[i], &error), 0, "%s: %s", wrong[i],
			     error);
		cr_assert_eq(clair_options_check(&p, &error), -EINVAL, "%s", wrong[i]);
		cr_assert(error && !strchr(error, '\n'));
		clair_options_finish(&p);
	}
}

static void write_ini(char *file, const char *text)
{
	strcpy(file, "/tmp/clairfs-test-XXXXXX");
	autoclose int fd = mkstemp(file);
	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

Test(options, ini)
{
	char file[64], option[128];

	write_ini(file, "[other]\nbogus = 1\n[clairfs]\n; a comment\nseed = 17\n"
			"ranks = 0,2\nworld = 4\nallow_other =\nram = 1G\n"
			"cache = /a:1G\ncache = /b:2G\n"
			"stream = val:sampler=sequential;batch=3\n");
	snprintf(option, sizeof option, "ram=2G,config=%s,seed=18", file);
	add(option);
	unlink(file);
	cr_assert_str_eq(word("seed"), "18"); /* the later one counts */
	cr_assert_str_eq(word("ranks"), "0,2");
	cr_assert_eq(o.ram, 1ull << 30);
	cr_assert_eq(o.cache_count, 2);
	cr_assert_str_eq(clair_words_get(&o.streams[0].words, "batch"), "3");
	cr_assert_eq(clair_options_check(&o, NULL), 0);
}

Test(options, ini_mistakes)
{
	static const char *const wrong[] = { "[clairfs]\nseed = 1\nbogus = 2\n",
					     "[clairfs]\nseed\n[clairfs]\n",
					     "[clairfs]\nconfig = /etc/x\n" };

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		autofree char *error = NULL;
		char file[64];
		write_ini(file, wrong[i]);
		cr_assert_eq(clair_options_read_file(&o, file, &error), -EINVAL, "%zu", i);
		cr_assert(error && strstr(error, file) && !strchr(error, '\n'), "%s", error);
		unlink(file);
	}
}

Test(options, long_ini_lines)
{
	char file[64], text[3000] = "[clairfs]\ncatalog = /", *p = text + strlen(text);
	size_t length = 2000;

	memset(p, 'x', length);
	strcpy(p + length, "\n");
	write_ini(file, text);
	autofree char *error = NULL;
	int r = clair_options_read_file(&o, file, &error);
	unlink(file);
	cr_assert_eq(r, 0, "%s", error);
	cr_assert_eq(strlen(o.catalog), length + 1);
}

static void clear_environment(void)
{
	static const char *const names[] = { "WORLD_SIZE", "RANK", "OMPI_COMM_WORLD_SIZE",
					     "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK",
					     "SLURM_NTASKS", "SLURM_PROCID", "SLURM_NODEID",
					     "SLURM_TASKS_PER_NODE", "SLURM_STEP_ID",
					     "SLURM_STEPID" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unsetenv(names[i]);
}

Test(options, environment)
{
	clear_environment();
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("world"), "(none)");
	setenv("SLURM_NTASKS", "16", 1);
	setenv("SLURM_PROCID", "5", 1);
	setenv("WORLD_SIZE", "rubbish", 1);
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("world"), "16");
	cr_assert_str_eq(word("ranks"), "5");
}

/* A batch script, which no step has begun: the tasks of its node. */
Test(options, environment_of_a_batch_script)
{
	clear_environment();
	setenv("SLURM_NTASKS", "14", 1);
	setenv("SLURM_PROCID", "0", 1);
	setenv("SLURM_TASKS_PER_NODE", "4(x2),3(x2)", 1);
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("ranks"), "0-3");
	clair_options_finish(&o);
	setenv("SLURM_NODEID", "2", 1);
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("ranks"), "8-10");
	clair_options_finish(&o);
	setenv("SLURM_STEP_ID", "0", 1);
	setenv("SLURM_PROCID", "9", 1);
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("ranks"), "9");
	clair_options_finish(&o);
	setenv("SLURM_TASKS_PER_NODE", "rubbish", 1);
	unsetenv("SLURM_STEP_ID");
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("ranks"), "9");
}

Test(options, environment_yields)
{
	clear_environment();
	setenv("OMPI_COMM_WORLD_SIZE", "16", 1);
	setenv("OMPI_COMM_WORLD_RANK", "5", 1);
	add("world=2,ranks=1");
	cr_assert_eq(clair_options_environment(&o), 0);
	cr_assert_str_eq(word("world"), "2");
	cr_assert_str_eq(word("ranks"), "1");
}

Test(options, sizes)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = { { "0", 0 },	  { "1", 1 },	      { "4K", 4096 },
		     { "1.5k", 1536 },	  { "2G", 2ull << 30 }, { "1T", 1ull << 40 },
		     { "10%", 100 },	  { "50%", 500 },	{ "3MiB", 3u << 20 } };
	static const char *const bad[] = { "", "x", "-1", "1Q", "101%", "1%%", "1 G", "nan" };
	uint64_t bytes;

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		cr_assert_eq(clair_size_parse(good[i].text, 1000, &bytes), 0, "%s",
			     good[i].text);
		cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_assert_eq(clair_size_parse(bad[i], 1000, &bytes), -EINVAL, "%s", bad[i]);
	cr_assert_gt(clair_memory_limit(), 1u << 20);
}

Test(options, ranks)
{
	uint32_t *ranks = NULL;
	size_t count;
	char *error = NULL;

	cr_assert_eq(clair_ranks_parse("5,0-2,1", 6, &ranks, &count, &error), 0);
	cr_assert_eq(count, 4);
	cr_assert(ranks[0] == 0 && ranks[1] == 1 && ranks[2] == 2 && ranks[3] == 5);
	free(ranks);
}
