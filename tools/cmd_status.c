/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs status: what the mounts do. */
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "cli.h"
#include "clock.h"
#include "control.h"
#include "mounts.h"
#include "report.h"

int cmd_status(int argc, char **argv);

struct status {
	bool json, job, wait, check;
};

#define ANSWER_MS (10 * 60 * 1000) /* a check of millions of files takes its time */

static int ask(int pid, const char *what, json_t **answer)
{
	json_t *question = json_pack("{s:s}", "do", what);
	int r = clair_control_ask(pid, question, ANSWER_MS, answer);

	json_decref(question);
	return r;
}

/* Until its staging window is full. */
static int wait_full(int pid)
{
	for (;;) {
		json_t *answer = NULL;
		int r = ask(pid, "full", &answer);
		bool full = json_is_true(json_object_get(answer, "full"));

		json_decref(answer);
		if (r < 0 || full)
			return r;
		poll(NULL, 0, 50);
	}
}

static void print_names(const json_t *report, const char *key, const char *what)
{
	json_t *name;
	size_t i;

	json_array_foreach(json_object_get(report, key), i, name)
	{
		if (json_is_string(name))
			printf("  %s: %s\n", what, json_string_value(name));
		else
			printf("  %s: entry %lld\n", what, (long long)json_integer_value(name));
	}
}

static int show(int pid, const struct status *how, json_t *list)
{
	json_t *report = NULL;

	int r = how->wait ? wait_full(pid) : 0;
	if (r == 0)
		r = ask(pid, how->check ? "check" : how->job ? "job" : "status", &report);
	if (r < 0)
		return cli_failure("the mount of process %d does not answer: %s", pid,
				   strerror(-r));
	if (how->json)
		return json_array_append_new(list, report) ? CLI_FAILURE : CLI_OK;
	printf("%s (process %d)\n",
	       json_string_value(json_object_get(report, "mountpoint")), pid);
	clair_report_print(report, stdout);
	print_names(report, "changed", "changed at the source");
	print_names(report, "removed", "removed at the source");
	print_names(report, "added", "new at the source, not in this mount");
	json_decref(report);
	return CLI_OK;
}

static int show_all(const int *pids, size_t count, bool one, const struct status *how)
{
	json_t *list = json_array();
	int status = CLI_OK;

	for (size_t i = 0; i < count && status == CLI_OK; i++)
		status = show(pids[i], how, list);
	/* One object for one mount point, an array when all were asked for. */
	if (how->json && status == CLI_OK) {
		json_dumpf(one || json_array_size(list) == 1 ? json_array_get(list, 0) : list,
			   stdout, JSON_INDENT(2));
		putchar('\n');
	}
	json_decref(list);
	return status;
}

int cmd_status(int argc, char **argv)
{
	struct status how = { 0 };
	const struct cli_flag flags[] = {
		{ "json", NULL, "as JSON", NULL, &how.json },
		{ "job", NULL, "of all nodes of the job", NULL, &how.job },
		{ "wait", NULL, "when the staging window is full", NULL, &how.wait },
		{ "check", NULL, "compare every file with the source first", NULL,
		  &how.check },
		{ NULL },
	};
	const struct cli_spec spec = {
		.verb = "status",
		.usage = "[MOUNTPOINT] [--json] [--job] [--wait] [--check]",
		.help = "Tells what a mount did and does; without MOUNTPOINT all of the "
			"user's mounts.",
		.flags = flags,
		.most = 1,
	};
	struct cli cli;
	autofree int *pids = NULL;
	size_t count;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	if (mounts_find(cli.count ? cli.args[0] : NULL, &pids, &count, NULL, &status))
		status = show_all(pids, count, cli.count > 0, &how);
	cli_finish(&cli);
	return status;
}
