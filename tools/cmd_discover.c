/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs discover: an order from a file of opens. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"
#include "cli.h"
#include "discover.h"
#include "index.h"

#define MOST_SAMPLES (1u << 27) /* a gigabyte of tables */

int cmd_discover(int argc, char **argv);

struct answer {
	bool known;
	char *folder;
	struct clair_words words;
	size_t opens;
	const struct clair_catalog *catalog;
};

static bool found(void *arg, uint32_t folder, const struct clair_words *words,
		  const uint32_t *ids, size_t count)
{
	struct answer *a = arg;
	char path[4096] = "";

	(void)ids;
	if (a->catalog)
		clair_catalog_path(a->catalog, folder, path, sizeof path);
	a->folder = strdup(path);
	a->known = clair_words_copy(&a->words, words) == 0;
	a->opens = count;
	return true;
}

/* What a trace's lines may name. */
struct samples {
	const struct clair_catalog *catalog; /* or NULL: only numbers */
	uint32_t *ids;			     /* by number, with a catalog */
	uint32_t count;
};

/* The file or sample that TEXT names; CLAIR_NO_ID: none. */
static uint32_t sample_of(const struct samples *s, const char *text)
{
	const struct clair_catalog *c = s->catalog;
	uint32_t id = c ? clair_catalog_find(c, text) : CLAIR_NO_ID;
	char *end;

	if (id != CLAIR_NO_ID && id)
		id = clair_catalog_resolve(c, id);
	if (id != CLAIR_NO_ID && id && clair_catalog_entry(c, id)->kind == CLAIR_FILE)
		return id;
	if (*text < '0' || *text > '9')
		return CLAIR_NO_ID;
	errno = 0;
	unsigned long long number = strtoull(text, &end, 10);
	if (*end || errno || number >= s->count)
		return CLAIR_NO_ID;
	return s->ids ? s->ids[number] : (uint32_t)number;
}

/* A line of a trace, ended. Process ids are of another machine or time: negative ones, so that
 * no environment is asked. */
static bool read_line(char *line, const struct samples *s, pid_t *pid, uint32_t *id)
{
	char *end;

	*pid = 0;
	/* A name may begin like a process id: the whole line comes first. */
	*id = sample_of(s, line);
	if (*id != CLAIR_NO_ID)
		return true;
	long number = strtol(line, &end, 10);
	if (end == line || *end != ' ' || number < 0 || number > INT32_MAX)
		return false;
	*pid = -(pid_t)number;
	*id = sample_of(s, end + 1);
	return *id != CLAIR_NO_ID;
}

static int read_trace(FILE *f, const char *name, const struct samples *s,
		      struct clair_discover *d)
{
	autofree char *line = NULL;
	size_t room = 0, number = 0;

	while (getline(&line, &room, f) >= 0) {
		uint32_t id;
		pid_t pid;

		number++;
		line[strcspn(line, "\r\n")] = '\0';
		if (!*line)
			continue;
		if (!read_line(line, s, &pid, &id))
			return cli_mistake(s->catalog ?
						   "%s: line %zu, '%.200s', names no file of the "
						   "source; a line is PATH or INDEX, or PID and "
						   "one of them" :
						   "%s: line %zu, '%.200s', is no number below "
						   "--n; a line is INDEX or PID INDEX",
					   name, number, line);
		clair_discover_open(d, pid, id);
	}
	return ferror(f) ? cli_failure("%s: %s", name, strerror(errno)) : CLI_OK;
}

static int print_answer(const struct answer *a, bool json, double seconds)
{
	if (json) {
		json_t *words = json_object();
		for (size_t i = 0; i < a->words.count; i++)
			json_object_set_new(words, a->words.items[i].key,
					    json_string(a->words.items[i].value));
		json_t *all = json_pack("{s:b, s:s?, s:o, s:I, s:f}", "found", a->known,
					"folder", a->folder, "words", words, "opens",
					(json_int_t)a->opens, "seconds", seconds);
		json_dumpf(all, stdout, JSON_INDENT(1));
		putchar('\n');
		json_decref(all);
	} else if (a->known) {
		printf("%s:", *a->folder ? a->folder : ".");
		for (size_t i = 0, n = 0; i < a->words.count; i++)
			if (strcmp(a->words.items[i].key, "how"))
				printf("%c%s=%s", n++ ? ';' : ' ', a->words.items[i].key,
				       a->words.items[i].value);
		printf("\n");
	} else {
		printf("unknown: no order fits these opens\n");
	}
	return a->known ? CLI_OK : CLI_FAILURE;
}

static int discover_from(FILE *f, const char *name, struct cli *cli,
			 const struct samples *samples, bool json)
{
	struct answer answer = { .catalog = samples->catalog };
	int64_t begin = clair_now_ns();
	unsigned threads = cli->options.discover_threads;
	struct clair_discover_config config = {
		.catalog = samples->catalog,
		.samples = samples->count,
		.given = &cli->options.order,
		.threads = threads ? threads : (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
		.found = found,
		.arg = &answer,
	};
	struct clair_discover *d;

	int r = clair_discover_new(&config, &d);
	if (r < 0)
		return cli_error(r, NULL, "discover");
	int status = read_trace(f, name, samples, d);
	if (status == CLI_OK)
		clair_discover_finish(d);
	clair_discover_free(d);
	if (status == CLI_OK)
		status = print_answer(&answer, json, (double)(clair_now_ns() - begin) / 1e9);
	clair_words_finish(&answer.words);
	free(answer.folder);
	return status;
}

/* The samples of a source, by number as the option index has them. */
static int open_source(struct cli *cli, struct clair_catalog **catalog,
		       struct samples *samples)
{
	const char *index = clair_words_get(&cli->options.order, "index");
	autofree char *source = NULL;
	char *error = NULL;
	int status = CLI_OK;

	autoclose int fd = cli_open_source(cli->args[0], &source, &status);
	if (fd < 0)
		return status;
	*catalog = cli_catalog(&cli->options, fd, source, &status);
	if (!*catalog)
		return status;
	samples->catalog = *catalog;
	int r = clair_index_make(*catalog, 0, index ? index : "auto", &samples->ids,
				 &samples->count, &error);
	return r < 0 ? cli_error(r, error, "index") : CLI_OK;
}

static int discover(struct cli *cli, const char *n, bool json)
{
	const char *trace = cli->args[n ? 0 : 1], *name = trace ? trace : "-";
	struct clair_catalog *catalog = NULL;
	struct samples samples = { 0 };
	uint64_t count = 0;
	int status = CLI_OK;

	if (n && !cli_number("n", n, MOST_SAMPLES, &count))
		return CLI_MISTAKE;
	if (!n && !cli->count)
		return cli_mistake("give a SOURCE or --n N");
	if (n && cli->count > 1)
		return cli_mistake("--n stands instead of a SOURCE: one TRACE at most");
	autofclose FILE *f = strcmp(name, "-") ? fopen(name, "re") : fdopen(dup(0), "r");
	if (!f)
		return cli_mistake("%s: %s; TRACE must be a file of opens", name,
				   strerror(errno));
	samples.count = (uint32_t)count;
	if (!n)
		status = open_source(cli, &catalog, &samples);
	if (status == CLI_OK)
		status = discover_from(f, name, cli, &samples, json);
	free(samples.ids);
	clair_catalog_free(catalog);
	return status;
}

int cmd_discover(int argc, char **argv)
{
	const char *n = NULL;
	bool json = false;
	const struct cli_flag flags[] = {
		{ "n", "N", "the number of samples, instead of a SOURCE", &n, NULL },
		{ "json", NULL, "as JSON", NULL, &json },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "discover",
		.usage = "(SOURCE | --n N) [TRACE] [-o OPTIONS] [--json]",
		.help = "Finds the order (sampler, seed, dataset order, world) that the opens in "
			"TRACE follow:\na line each, oldest first, PATH or INDEX (into the "
			"dataset order), or a process id and\none of them; standard input when "
			"there is none, or with -. With process ids fewer\nopens are needed. Exit "
			"status 1 when nothing fits.",
		.flags = flags,
		.most = 2,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	status = discover(&cli, n, json);
	cli_finish(&cli);
	return status;
}
