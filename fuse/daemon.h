/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_DAEMON_H
#define CLAIR_DAEMON_H

#include <stdbool.h>

#include "options.h"

/* What is written to ready_fd when the mount serves; anything else is an error line. */
#define CLAIR_DAEMON_READY "ready\n"

struct clair_daemon_config {
	const struct clair_options *options;
	int source_fd;           /* the source's folder below the mount; taken */
	const char *source_path; /* absolute */
	const char *mountpoint;  /* absolute */
	int fuse_fd;     /* an opened and mounted /dev/fuse, taken, or -1: mount here */
	int root_fd;     /* O_PATH of that mount's root, taken, or -1 */
	int ready_fd;    /* taken; gets CLAIR_DAEMON_READY or one line; -1: stderr */
	bool leave;      /* once ready: leave a terminal or pipe that standard error is */
	int link_fd; /* taken; to the peer process of this node; -1: no job */
	int lifeline_fd; /* taken; at its end the mount is not held any longer; or -1 */
};

/* Runs a mount until it is unmounted, in the calling process. Returns the exit status: 0,
 * 1 a failure, 2 a mistake of the user's. */
int clair_daemon_run(const struct clair_daemon_config *config);

#endif
