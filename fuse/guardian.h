/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_GUARDIAN_H
#define CLAIR_GUARDIAN_H

#include <sys/types.h>

/* A process that waits for the daemon's death and then aborts the FUSE connection. The daemon
 * asks its own mount for things; killed within such a request, its thread would wait for an
 * answer from threads that are dead, and keep the connection open for ever: nothing would
 * reach the readers but silence. Sleeps until then and holds nothing of the daemon.
 *
 * MINOR: of the mount's device. Returns the process id; -ENOENT where no connection can be
 * aborted (no fusectl file system); other negative errno. To be called by the thread whose end
 * is the daemon's. */
pid_t clair_guardian_start(unsigned minor);
/* Before an orderly end. Takes 0 and less. */
void clair_guardian_stop(pid_t guardian);

#endif
