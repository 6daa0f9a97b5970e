/* SPDX-License-Identifier: BSD-3-Clause */
/* clairfs set: what describes the order, while mounted. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "cli.h"
#include "control.h"
#include "mounts.h"

int cmd_set(int argc, char **argv);

static int set_word(int pid, const char *inside, const char *assignment)
{
	const char *equals = strchr(assignment, '=');
	json_t *answer = NULL;

	if (!equals || equals == assignment)
		return cli_mistake("%s: must be WORD=VALUE", assignment);
	json_t *question = json_pack("{s:s, s:s, s:s%, s:s}", "do", "set", "path", inside,
				     "word", assignment, (size_t)(equals - assignment),
				     "value", equals + 1);
	if (!question)
		return cli_mistake("%s: is not text", assignment);
	int r = clair_control_ask(pid, question, 60000, &answer);
	json_decref(question);
	if (r < 0)
		return cli_failure("the mount does not answer: %s", strerror(-r));
	const char *error = json_string_value(json_object_get(answer, "error"));
	int status = !error ? CLI_OK :
		     json_is_true(json_object_get(answer, "mistake")) ?
			      cli_mistake("%s", error) :
			      cli_failure("%s", error);
	json_decref(answer);
	return status;
}

int cmd_set(int argc, char **argv)
{
	const struct cli_spec spec = {
		.verb = "set",
		.usage = "MOUNTPOINT WORD=VALUE…",
		.help = "Sets what describes the order (seed, epoch, sampler, …) of the "
			"stream of that folder.",
		.least = 2,
		.most = 64,
	};
	struct cli cli;
	autofree int *pids = NULL;
	autofree char *inside = NULL;
	size_t count;
	int status;

	if (!cli_parse(&spec, argc, argv, &cli, &status))
		return status;
	if (mounts_find(cli.args[0], &pids, &count, &inside, &status))
		for (size_t i = 1, failed = 0; i < cli.count && !failed; i++) {
			status = set_word(pids[0], inside, cli.args[i]);
			failed = status != CLI_OK;
		}
	cli_finish(&cli);
	return status;
}
