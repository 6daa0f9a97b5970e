/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CLI_H
#define CLAIR_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "catalog.h"
#include "options.h"

/* What the verbs share. Each verb is one file, cmd_VERB.c, with one function of the same
 * name that returns the exit status, and one line in verbs.h. */

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_MISTAKE = 2 };

/* One flag of a verb (`-o`, `--help` and `--version` are there by themselves). */
struct cli_flag {
	const char *name; /* long name, without the dashes; NULL ends the table */
	const char *argument; /* how the help calls its value; NULL: it takes none */
	const char *help;
	/* Where it goes: VALUE when it takes one (points into argv), else PRESENT. */
	const char **value;
	bool *present;
};

struct cli_spec {
	const char *verb;
	const char *usage; /* what follows the verb, one line */
	const char *help;  /* a few lines */
	const struct cli_flag *flags; /* or NULL */
	unsigned least, most; /* arguments (SOURCE, MOUNTPOINT, …) */
	bool command;         /* the rest after `--` is a command, and must be there */
};

struct cli {
	struct clair_options options;
	const char **args; /* NULL-terminated; point into argv */
	size_t count;
	char **command; /* after `--`, NULL-terminated, or NULL */
};

/* Parses what follows the verb (argv[0] is the verb). True: go on. False: *STATUS is the
 * exit status, all has been said, and there is nothing to finish. Options have been
 * completed from the environment and checked, and the log is set up. */
bool cli_parse(const struct cli_spec *spec, int argc, char **argv, struct cli *cli,
	       int *status);
void cli_finish(struct cli *cli);

/* One line on stderr, `clairfs VERB: …`, without a newline in FORMAT. Return the exit
 * status: 2 (a mistake of the user's), 1 (a failure). */
int cli_mistake(const char *format, ...) __attribute__((format(printf, 1, 2)));
int cli_failure(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* For a library's result R < 0 with its line in ERROR (which is freed; may be NULL):
 * -EINVAL is a mistake, all else a failure; WHAT begins the line when there is no ERROR. */
int cli_error(int r, char *error, const char *what);

/* A number given to a flag: true, or false after a line on stderr (a mistake). */
bool cli_number(const char *flag, const char *text, uint64_t max, uint64_t *out);

/* The source's folder, O_RDONLY, and its absolute path without links (heap). Returns the
 * descriptor, or -1 with *STATUS set and a line on stderr. */
int cli_open_source(const char *path, char **absolute, int *status);
/* The catalog as the options have it (see catalog_open.h), with a line of progress when
 * stderr is a terminal. NULL with *STATUS set and a line on stderr. */
struct clair_catalog *cli_catalog(const struct clair_options *options, int root_fd,
				  const char *absolute, int *status);

#endif
