/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SUPERVISOR_H
#define CLAIR_SUPERVISOR_H

#include <stdbool.h>

#include "options.h"

/* `clairfs run`: a command with a private mount over SOURCE.
 *
 * Three processes: the supervisor (the caller, which stays the command's parent, in its
 * process group and terminal), the daemon (a session of its own, outside of all
 * namespaces), and the command (which made the namespaces and the mount before its exec).
 * Whoever dies, nothing is left: the mount ends with the last process that sees it; when
 * the daemon dies the supervisor uncovers the source inside. */
struct clair_run {
	const struct clair_options *options;
	const char *source;      /* as the user gave it */
	char *const *command;    /* ends with NULL */
	const char *report_file; /* JSON at the end, or NULL */
	bool quiet;              /* no report on stderr */
};

/* Returns the exit status to pass on: the command's (128 + signal), 126 or 127 as a shell
 * does, 2 for a mistake of the user's, 1 when the mount could not be made. Everything was
 * told on stderr. */
int clair_run(const struct clair_run *run);

#endif
