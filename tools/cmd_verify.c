/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs verify: reads a directory tier from end to end. */
#include <errno.h>
#include <stdio.h>

#include "cli.h"
#include "disk.h"

int cmd_verify(int argc, char **argv);

int cmd_verify(int argc, char **argv)
{
	bool repair = false;
	const struct cli_flag flags[] = {
		{ "repair", NULL, "forget what is damaged", NULL, &repair },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "verify",
		.usage = "DIRECTORY-TIER [--repair]",
		.help = "Reads every sample of a cache folder and checks it. Exit status 1 "
			"when something\nis damaged.",
		.flags = flags,
		.least = 1,
		.most = 1,
	};
	struct clair_disk_check check;
	struct cli cli;
	char *error = NULL;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	int r = clair_disk_verify(cli.args[0], repair, stdout, &check, &error);
	if (r < 0) {
		status = cli_error(r, error, cli.args[0]);
	} else {
		printf("%llu samples, %.1f MB, %llu damaged%s\n",
		       (unsigned long long)check.samples, (double)check.bytes / 1e6,
		       (unsigned long long)check.damaged,
		       check.complete ? "" : "; the index had a torn end");
		status = check.damaged && !repair ? CLI_FAILURE : CLI_OK;
	}
	cli_finish(&cli);
	return status;
}
