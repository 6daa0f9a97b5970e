/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs run: a command with a private mount over SOURCE. */
#include <string.h>

#include "cli.h"
#include "supervisor.h"

int cmd_run(int argc, char **argv);

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
	struct clair_run run = { .options = &cli.options, .source = cli.args[0],
				 .command = cli.command, .report_file = report,
				 .quiet = quiet };
	status = clair_run(&run);
	cli_finish(&cli);
	return status;
}
