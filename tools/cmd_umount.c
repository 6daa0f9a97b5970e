/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs umount: at the first try, also while the mount is staging. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "cli.h"
#include "control.h"
#include "mounts.h"
#include "unmount.h"

int cmd_umount(int argc, char **argv);

#define GONE_MS 6000
#define TRIES 40
#define TRY_MS 25

static void pause_daemon(int pid)
{
	json_t *question = json_pack("{s:s}", "do", "pause"), *answer = NULL;

	if (clair_control_ask(pid, question, 2000, &answer) == 0)
		json_decref(answer);
	json_decref(question);
}

/* Threads that hang in the source keep what is left of a process that has ended. */
static bool has_ended(int pid)
{
	char path[64], line[256];
	char state = 'X';

	if (kill(pid, 0) < 0 && errno == ESRCH)
		return true;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	autofclose FILE *f = fopen(path, "re");
	if (f && fgets(line, sizeof line, f)) {
		const char *name_end = strrchr(line, ')');
		if (name_end && name_end[1])
			state = name_end[2];
	}
	return f && (state == 'Z' || state == 'X');
}

static int umount_path(const char *given)
{
	/* A dead mount has no real path: it is unmounted as it was given. */
	int r = clair_unmount_dead(given);
	if (r < 0)
		return cli_failure("%s: %s", given, strerror(-r));
	bool was_dead = r > 0;
	autofree char *path = realpath(given, NULL);
	if (!path)
		return cli_mistake("%s: %s", given, strerror(errno));
	int pid = clair_unmount_find(path);
	if (!pid && !mounts_is_clairfs(path))
		return was_dead ? CLI_OK :
				  cli_mistake("%s: no clairfs is mounted there", given);
	if (pid)
		pause_daemon(pid);
	/* What the daemon has open itself is closed within a moment. */
	for (int i = 0; i < TRIES; i++) {
		r = clair_unmount(path, false);
		if (r != -EBUSY)
			break;
		poll(NULL, 0, TRY_MS);
	}
	if (r == -EBUSY)
		return cli_failure("%s: is in use; end what has files open there or is in "
				   "that folder (fuser -vm shows it)",
				   given);
	if (r < 0)
		return cli_failure("%s: %s", given, strerror(-r));
	for (int i = 0; pid && i < GONE_MS / 10 && !has_ended(pid); i++)
		poll(NULL, 0, 10);
	return CLI_OK;
}

int cmd_umount(int argc, char **argv)
{
	const struct cli_spec spec = {
		.verb = "umount",
		.usage = "MOUNTPOINT",
		.help = "Unmounts, and returns when the daemon is gone.",
		.least = 1,
		.most = 1,
	};
	struct cli cli;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	status = umount_path(cli.args[0]);
	cli_finish(&cli);
	return status;
}
