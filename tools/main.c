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

/* As mount(8) calls the helper of a type: SOURCE DIR [-sfnv] [-o OPTIONS] [-N NS] [-t TYPE].
 * Only the options go on to `mount`. */
static int as_mount_helper(int argc, char **argv, int (*mount)(int, char **))
{
	static char verb[] = "mount";
	char **words = argv; /* what stays moves to the front */
	int n = 0;

	words[n++] = verb;
	for (int i = 1; i < argc; i++) {
		const char *a = argv[i];

		if (i > 2 && (!strcmp(a, "-t") || !strcmp(a, "-N")))
			i++;
		else if (i <= 2 || a[0] != '-' || !a[1] || a[strspn(a + 1, "sfnv") + 1])
			words[n++] = argv[i];
		else if (strchr(a, 'f'))
			return CLI_OK; /* `mount -f`: all but the mount itself */
	}
	words[n] = NULL;
	return mount(n, words);
}

static bool is_mount_helper(const char *name)
{
	const char *slash = strrchr(name, '/');

	name = slash ? slash + 1 : name;
	return !strcmp(name, "mount.clairfs") || !strcmp(name, "mount.fuse.clairfs");
}

int main(int argc, char **argv)
{
	for (size_t i = 0; argc > 0 && is_mount_helper(argv[0]) && i < VERBS; i++)
		if (!strcmp(verbs[i].name, "mount"))
			return as_mount_helper(argc, argv, verbs[i].run);
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
