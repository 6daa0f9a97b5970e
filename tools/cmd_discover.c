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
	char path[4096];

	(void)ids;
	clair_catalog_path(a->catalog, folder, path, sizeof path);
	a->folder = strdup(path);
	a->known = clair_words_copy(&a->words, words) == 0;
	a->opens = count;
	return true;
}

/* The file that a line names, relative to the source; CLAIR_NO_ID: none. */
static uint32_t file_of(const struct clair_catalog *c, const char *text)
{
	uint32_t id = clair_catalog_find(c, text);

	if (id != CLAIR_NO_ID && id)
		id = clair_catalog_resolve(c, id);
	if (id == CLAIR_NO_ID || !id || clair_catalog_entry(c, id)->kind != CLAIR_FILE)
		return CLAIR_NO_ID;
	return id;
}

static int read_trace(FILE *f, const char *name, const struct clair_catalog *c,
		      struct clair_discover *d)
{
	autofree char *line = NULL;
	size_t room = 0, number = 0;

	while (getline(&line, &room, f) >= 0) {
		char *path = line, *end;
		long pid = 0;

		number++;
		line[strcspn(line, "\r\n")] = '\0';
		if (!*line)
			continue;
		/* A name may begin like a process id: the whole line comes first. */
		uint32_t id = file_of(c, line);
		if (id == CLAIR_NO_ID) {
			pid = strtol(line, &end, 10);
			if (end != line && *end == ' ') {
				path = end + 1;
				id = file_of(c, path);
			}
		}
		if (id == CLAIR_NO_ID)
			return cli_mistake("%s: line %zu, '%s', names no file of the source; a "
					   "line is PATH or PID PATH",
					   name, number, line);
		(void)pid; /* of another machine or time: its environment is not asked */
		clair_discover_open(d, 0, id);
	}
	return CLI_OK;
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

static int discover(struct cli *cli, bool json)
{
	const char *name = cli->count > 1 ? cli->args[1] : "-";
	struct answer answer = { 0 };
	struct clair_discover *d = NULL;
	struct clair_catalog *catalog = NULL;
	autofree char *source = NULL;
	int status = CLI_OK;
	int64_t begin = clair_now_ns();

	autoclose int fd = cli_open_source(cli->args[0], &source, &status);
	if (fd < 0)
		return status;
	autofclose FILE *f = strcmp(name, "-") ? fopen(name, "re") : fdopen(dup(0), "r");
	if (!f)
		return cli_mistake("%s: %s; TRACE must be a file of opens", name,
				   strerror(errno));
	catalog = cli_catalog(&cli->options, fd, source, &status);
	if (!catalog)
		return status;
	answer.catalog = catalog;
	struct clair_discover_config config = { .catalog = catalog,
						.given = &cli->options.order,
						.threads = cli->options.discover_threads ?
								   cli->options.discover_threads :
								   (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
						.found = found,
						.arg = &answer };
	int r = clair_discover_new(&config, &d);
	if (r < 0) {
		status = cli_error(r, NULL, "discover");
	} else {
		status = read_trace(f, name, catalog, d);
		if (status == CLI_OK) {
			clair_discover_finish(d);
			clair_discover_free(d);
			status = print_answer(&answer, json,
					      (double)(clair_now_ns() - begin) / 1e9);
		} else {
			clair_discover_free(d);
		}
	}
	clair_words_finish(&answer.words);
	free(answer.folder);
	clair_catalog_free(catalog);
	return status;
}

int cmd_discover(int argc, char **argv)
{
	bool json = false;
	const struct cli_flag flags[] = {
		{ "json", NULL, "as JSON", NULL, &json },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "discover",
		.usage = "SOURCE [TRACE] [-o OPTIONS] [--json]",
		.help = "Finds the order (sampler, seed, dataset order) that the opens in TRACE "
			"follow: a line\neach, PATH or PID PATH, oldest first; standard input "
			"when there is none. Exit status 1\nwhen nothing fits.",
		.flags = flags,
		.least = 1,
		.most = 2,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	status = discover(&cli, json);
	cli_finish(&cli);
	return status;
}
