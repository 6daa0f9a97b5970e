/* SPDX-License-Identifier: BSD-3-Clause */
#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "catalog_open.h"
#include "cleanup.h"
#include "log.h"

#define MAX_FLAGS 24

/* For the lines on stderr; a process runs one verb. */
static const char *current_verb = "";

static void say(const char *format, va_list ap)
{
	char line[4096];

	vsnprintf(line, sizeof line, format, ap);
	/* What the user gave may hold newlines; the message stays one line. */
	for (char *p = line; *p; p++)
		if (*p == '\n')
			*p = ' ';
	fprintf(stderr, "clairfs %s: %s\n", current_verb, line);
}

int cli_mistake(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(format, ap);
	va_end(ap);
	return CLI_MISTAKE;
}

int cli_failure(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	say(format, ap);
	va_end(ap);
	return CLI_FAILURE;
}

int cli_error(int r, char *error, const char *what)
{
	autofree char *line = error;

	if (r == -EINVAL)
		return cli_mistake("%s", line ? line : what);
	if (line)
		return cli_failure("%s", line);
	return cli_failure("%s: %s", what, strerror(-r));
}

bool cli_number(const char *flag, const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	unsigned long long v = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || v > max) {
		cli_mistake("--%s %s: must be a number from 0 to %llu", flag, text,
			    (unsigned long long)max);
		return false;
	}
	*out = v;
	return true;
}

/* --- parsing ------------------------------------------------------------------------ */

static void print_help(const struct cli_spec *spec)
{
	printf("usage: clairfs %s %s\n\n%s\n\n", spec->verb, spec->usage, spec->help);
	for (const struct cli_flag *f = spec->flags; f && f->name; f++) {
		char left[64];
		snprintf(left, sizeof left, "--%s%s%s", f->name, f->argument ? " " : "",
			 f->argument ? f->argument : "");
		printf("  %-20s %s\n", left, f->help);
	}
	printf("  %-20s %s\n  %-20s %s\n  %-20s %s\n", "-o WORD=VALUE,...",
	       "options, see clairfs.conf(5)", "--help", "this text", "--version",
	       "the version");
}

enum { HELP = 256, VERSION_FLAG, FIRST_FLAG };

static void fill_long(const struct cli_spec *spec, struct option *longs)
{
	size_t n = 0;

	longs[n++] = (struct option){ "help", no_argument, NULL, HELP };
	longs[n++] = (struct option){ "version", no_argument, NULL, VERSION_FLAG };
	longs[n++] = (struct option){ "options", required_argument, NULL, 'o' };
	for (size_t i = 0; spec->flags && spec->flags[i].name && i < MAX_FLAGS; i++)
		longs[n++] = (struct option){ spec->flags[i].name,
					      spec->flags[i].argument ? required_argument :
									no_argument,
					      NULL, FIRST_FLAG + (int)i };
	longs[n] = (struct option){ 0 };
}

/* One thing that getopt found. True: go on. */
static bool take(const struct cli_spec *spec, int c, const char *word, struct cli *cli,
		 int *status)
{
	char *error = NULL;

	if (c == 1) {
		cli->args[cli->count++] = optarg;
		return true;
	}
	if (c == HELP || c == 'h' || c == VERSION_FLAG || c == 'V') {
		if (c == HELP || c == 'h')
			print_help(spec);
		else
			printf("clairfs %s\n", CLAIR_VERSION);
		*status = CLI_OK;
		return false;
	}
	if (c == 'o') {
		int r = clair_options_add(&cli->options, optarg, &error);
		if (r < 0)
			*status = cli_error(r, error, "-o");
		return r == 0;
	}
	if (c >= FIRST_FLAG) {
		const struct cli_flag *f = &spec->flags[c - FIRST_FLAG];
		if (f->argument)
			*f->value = optarg;
		else
			*f->present = true;
		return true;
	}
	*status = c == ':' ? cli_mistake("%s: needs a value; see `clairfs %s --help`", word,
					 spec->verb) :
			     cli_mistake("%s: there is no such option, or it takes no "
					 "value; see `clairfs %s --help`",
					 word, spec->verb);
	return false;
}

static bool parse_words(const struct cli_spec *spec, int argc, char **argv, struct cli *cli,
			int *status)
{
	struct option longs[MAX_FLAGS + 4];

	fill_long(spec, longs);
	optind = 0; /* glibc: begin anew */
	opterr = 0;
	for (;;) {
		int at = optind ? optind : 1;
		/* '-': arguments in place, as code 1; so `--` is found where it is. */
		int c = getopt_long(argc, argv, "-:ho:V", longs, NULL);

		if (c == -1)
			break;
		if (!take(spec, c, at < argc ? argv[at] : "", cli, status))
			return false;
	}
	bool dashes = optind > 1 && !strcmp(argv[optind - 1], "--");
	if (spec->command && dashes && optind < argc)
		cli->command = argv + optind;
	else if (!spec->command)
		while (optind < argc)
			cli->args[cli->count++] = argv[optind++];
	return true;
}

static bool check_arguments(const struct cli_spec *spec, struct cli *cli, int *status)
{
	char *error = NULL;
	int r = 0;

	if (cli->count < spec->least)
		*status = cli_mistake("too few arguments; usage: clairfs %s %s", spec->verb,
				      spec->usage);
	else if (cli->count > spec->most)
		*status = cli_mistake("'%s' is one argument too many; usage: clairfs %s %s",
				      cli->args[spec->most], spec->verb, spec->usage);
	else if (spec->command && !cli->command)
		*status = cli_mistake("a command is missing after `--`; usage: clairfs %s "
				      "%s",
				      spec->verb, spec->usage);
	else if ((r = clair_options_environment(&cli->options)) < 0)
		*status = cli_error(r, NULL, "options");
	else if ((r = clair_options_check(&cli->options, &error)) < 0)
		*status = cli_error(r, error, "options");
	else if (cli->options.log && (r = clair_log_setup(cli->options.log)) < 0)
		*status = cli_mistake("log=%s: %s", cli->options.log, strerror(-r));
	else
		return true;
	return false;
}

bool cli_parse(const struct cli_spec *spec, int argc, char **argv, struct cli *cli,
	       int *status)
{
	current_verb = spec->verb;
	*cli = (struct cli){ 0 };
	int r = clair_options_init(&cli->options);
	cli->args = calloc((size_t)argc + 1, sizeof *cli->args);
	if (r < 0 || !cli->args) {
		*status = cli_failure("%s", strerror(r < 0 ? -r : ENOMEM));
	} else if (parse_words(spec, argc, argv, cli, status) &&
		   check_arguments(spec, cli, status)) {
		return true;
	}
	cli_finish(cli);
	return false;
}

void cli_finish(struct cli *cli)
{
	clair_options_finish(&cli->options);
	free(cli->args);
	*cli = (struct cli){ 0 };
}

/* --- the source --------------------------------------------------------------------- */

int cli_open_source(const char *path, char **absolute, int *status)
{
	autofree char *real = realpath(path, NULL);

	if (!real) {
		*status = cli_mistake("%s: %s; SOURCE must be the dataset's folder",
				      *path ? path : "an empty SOURCE", strerror(errno));
		return -1;
	}
	int fd = open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		*status = cli_mistake("%s: %s; SOURCE must be a folder that you may read",
				      path, strerror(errno));
	else
		*absolute = take_ptr(real);
	return fd;
}

static void show_progress(void *arg, uint64_t entries, uint64_t folders_left)
{
	bool *shown = arg;

	*shown = true;
	fprintf(stderr, "\rreading the source's folders: %llu entries, %llu folders to go ",
		(unsigned long long)entries, (unsigned long long)folders_left);
}

struct clair_catalog *cli_catalog(const struct clair_options *options, int root_fd,
				  const char *absolute, int *status)
{
	struct clair_catalog *catalog = NULL;
	bool shown = false, terminal = isatty(STDERR_FILENO);
	char *error = NULL;

	int r = clair_options_check_source(options, absolute, &error);
	if (r < 0) {
		*status = cli_error(r, error, "cache");
		return NULL;
	}
	r = clair_catalog_open(options, root_fd, absolute, terminal ? show_progress : NULL,
			       &shown, &catalog, NULL);
	if (shown)
		fprintf(stderr, "\r\033[K");
	if (r < 0) {
		*status = cli_failure("%s: %s", absolute, strerror(-r));
		return NULL;
	}
	return catalog;
}
