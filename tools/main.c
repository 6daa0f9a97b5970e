/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <string.h>

#include "cli.h"

#define VERB(name, help) int cmd_##name(int argc, char **argv);
#include "verbs.h"
#undef VERB

static const struct verb {
	const char *name, *help;
	int (*run)(int argc, char **argv);
} verbs[] = {
#define VERB(name, help) { #name, help, cmd_##name },
#include "verbs.h"
#undef VERB
};

#define VERBS (sizeof verbs / sizeof verbs[0])

static int print_help(FILE *f)
{
	fprintf(f, "usage: clairfs VERB [ARGUMENTS]\n\n");
	for (size_t i = 0; i < VERBS; i++)
		fprintf(f, "  %-10s %s\n", verbs[i].name, verbs[i].help);
	fprintf(f, "\n`clairfs VERB --help` tells what a verb takes; clairfs(1) has "
		   "it all.\n");
	return CLI_OK;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "clairfs: a verb is missing; `clairfs --help` lists them\n");
		return CLI_MISTAKE;
	}
	const char *verb = argv[1];
	if (!strcmp(verb, "--help") || !strcmp(verb, "-h") || !strcmp(verb, "help"))
		return print_help(stdout);
	if (!strcmp(verb, "--version") || !strcmp(verb, "-V")) {
		printf("clairfs %s\n", CLAIR_VERSION);
		return CLI_OK;
	}
	for (size_t i = 0; i < VERBS; i++)
		if (!strcmp(verbs[i].name, verb))
			return verbs[i].run(argc - 1, argv + 1);
	fprintf(stderr, "clairfs: '%s' is not a verb; `clairfs --help` lists them\n", verb);
	return CLI_MISTAKE;
}
