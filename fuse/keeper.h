/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_KEEPER_H
#define CLAIR_KEEPER_H

#include <signal.h>
#include <stdbool.h>

struct clair_mount;

/* A thread that sees the end of the mount coming: signals, the supervisor's lifeline, and
 * the mount point's disappearance from the mount table (the daemon's own hold on the mount
 * would keep it alive otherwise). It makes the session end, and ends the process when that
 * takes too long. The session must be run by the thread that starts the keeper. */
struct clair_keeper;

/* The signals that the keeper takes: all threads must have them blocked. */
void clair_keeper_signals(sigset_t *set);
/* LIFELINE: a socket, taken, or -1. OWN_MOUNT: the mount is in this namespace. */
int clair_keeper_start(struct clair_mount *mount, int lifeline, bool own_mount,
		       struct clair_keeper **out);
/* The session has ended: the process has a few seconds from now on. Takes NULL. */
void clair_keeper_ending(struct clair_keeper *keeper);
/* Takes the mount off its mount point if it is still there. Only with OWN_MOUNT. */
void clair_keeper_unmount(struct clair_keeper *keeper);
/* Another node of the job says that it is over: as after a signal. Not for a mount whose command
 * still runs (not OWN_MOUNT): that one goes on alone. Before the keeper there is one: the
 * process ends. */
void clair_keeper_job_ends(struct clair_mount *mount);
void clair_keeper_stop(struct clair_keeper *keeper); /* takes NULL */

#endif
