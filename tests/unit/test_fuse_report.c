/* SPDX-License-Identifier: BSD-3-Clause */
/* The report for people, from reports that have all, some and nothing of what it may have. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static char *printed(json_t *report)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);

	cr_assert_not_null(report);
	clair_report_print(report, f);
	fclose(f);
	json_decref(report);
	return text;
}

static void has(const char *text, const char *part, bool expected)
{
	cr_assert_eq(!!strstr(text, part), expected, "'%s' in: %s", part, text);
}

static json_t *with_epochs(int count)
{
	json_t *epochs = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(epochs,
				      json_pack("{s:i, s:i, s:i, s:I, s:f, s:f}", "epoch", 100 + i,
						"opens", 10, "staged", 9, "bytes",
						(json_int_t)8000000, "seconds", 2.0, "stall_s",
						0.125));
	return json_pack("{s:s, s:i, s:I, s:I, s:[{s:s, s:o, s:{s:s, s:s, s:s, s:i, s:i, s:b}}], "
			 "s:{s:{s:I}}, s:{s:i}}",
			 "source", "/data", "samples", 10, "bytes", (json_int_t)5000000,
			 "pfs_bound_bytes", (json_int_t)3000000, "streams", "path", "train",
			 "epochs", epochs, "order", "how", "given", "sampler",
			 "torch-distributed", "index", "sorted", "seed", 7, "world", 2, "trusted",
			 0, "reads", "pfs", "bytes", (json_int_t)4500000, "pfs", "opens", 33);
}

Test(report, numbers)
{
	char *text = printed(with_epochs(1));

	has(text, "/data: 10 files, 5.0 MB", true);
	has(text, "train: order given: torch-distributed over sorted, seed 7, world 2", true);
	has(text, "DO NOT FOLLOW", true);
	has(text, "4.5 MB (lower bound 3.0 MB), in 33 opens", true);
	has(text, "     4     0.125", true); /* MB/s, stall */
	has(text, "errors", false);
	free(text);
}

Test(report, only_the_newest_epochs)
{
	char *text = printed(with_epochs(20));

	has(text, "    107 ", false);
	has(text, "    108 ", true);
	has(text, "    119 ", true);
	free(text);
}

Test(report, errors_and_unknown)
{
	char *text = printed(json_pack("{s:s, s:{s:i, s:i}, s:[{s:s}]}", "source", "/d", "errors",
				       "hash", 2, "reader", 1, "streams", "path", ""));

	has(text, ".: order unknown", true);
	has(text, "checksums 2", true);
	has(text, "told to readers 1", true);
	has(text, "lower bound", false);
	free(text);
}
