/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs trace: opens of a running mount, as they come. */
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "control.h"
#include "mounts.h"

int cmd_trace(int argc, char **argv);

static int trace(int pid)
{
	json_t *question = json_pack("{s:s}", "do", "trace");
	autoclose int fd = clair_control_connect(pid, question);
	char buffer[65536];
	ssize_t n;

	json_decref(question);
	if (fd < 0)
		return cli_failure("the mount does not answer: %s", strerror(-fd));
	while ((n = read(fd, buffer, sizeof buffer)) > 0 || (n < 0 && errno == EINTR))
		if (n > 0 && write(STDOUT_FILENO, buffer, (size_t)n) < 0)
			return errno == EPIPE ? CLI_OK : cli_failure("%m");
	return CLI_OK;
}

int cmd_trace(int argc, char **argv)
{
	const struct cli_spec spec = {
		.verb = "trace",
		.usage = "MOUNTPOINT",
		.help = "Prints readers' opens until the mount ends: a line each, PATH or, "
			"while the opener is\nknown, PID PATH.",
		.least = 1,
		.most = 1,
	};
	struct cli cli;
	autofree int *pids = NULL;
	size_t count;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	if (mounts_find(cli.args[0], &pids, &count, NULL, &status))
		status = trace(pids[0]);
	cli_finish(&cli);
	return status;
}
