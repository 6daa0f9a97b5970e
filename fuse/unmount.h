/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_UNMOUNT_H
#define CLAIR_UNMOUNT_H

#include <stdbool.h>

/* Unmounts a dead mount ("transport endpoint is not connected") at PATH, if there is one.
 * How many there were, or a negative errno (errno is set too). */
int clair_unmount_dead(const char *path);
/* Unmounts PATH: as root directly, else by fusermount3. LAZY: also while it is in use.
 * 0 or a negative errno (-EBUSY, -EINVAL: not mounted, -EPERM). */
int clair_unmount(const char *path, bool lazy);
/* The process that serves the mount at PATH (absolute), by the control sockets; its
 * mountpoint is compared. 0 when there is none. */
int clair_unmount_find(const char *path);

#endif
