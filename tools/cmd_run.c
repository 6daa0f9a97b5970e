/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs run: a command with a private mount over SOURCE. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "supervisor.h"

int cmd_run(int argc, char **argv);

/* A report that could not be written is told before the command's hours, not after. */
static bool report_fits(const char *file)
{
	struct stat st;
	int error = 0;

	if (stat(file, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			error = EISDIR;
		else if (faccessat(AT_FDCWD, file, W_OK, AT_EACCESS) < 0)
			error = errno;
	} else if (errno == ENOENT) {
		autofree char *copy = strdup(file);
		if (copy && faccessat(AT_FDCWD, dirname(copy), W_OK, AT_EACCESS) < 0)
			error = errno;
	} else {
		error = errno;
	}
	if (error)
		cli_mistake("--report %s: %s; must be a file that you may write", file,
			    strerror(error));
	return !error;
}

int cmd_run(int argc, char **argv)
{
	const char *report = NULL;
	bool quiet = false;
	const struct cli_flag flags[] = {
		{ "report", "FILE", "write the report as JSON when the command has ended",
		  &report, NULL },
		{ "quiet", NULL, "no report on standard error", NULL, &quiet },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "run",
		.usage = "SOURCE [-o OPTIONS] [--report FILE] [--quiet] -- COMMAND [ARG…]",
		.help = "Runs COMMAND with a mount over SOURCE that only it and its children "
			"see. Needs no\nroot. Passes on the command's exit status.",
		.flags = flags,
		.least = 1,
		.most = 1,
		.command = true,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	if (report && !report_fits(report)) {
		cli_finish(&cli);
		return CLI_MISTAKE;
	}
	struct clair_run run = { .options = &cli.options, .source = cli.args[0],
				 .command = cli.command, .report_file = report,
				 .quiet = quiet };
	status = clair_run(&run);
	cli_finish(&cli);
	return status;
}
