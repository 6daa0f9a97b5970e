/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_MOUNTS_H
#define CLAIR_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>

/* The user's mounts, for the verbs that ask them. */

/* Whether the mount table has a clairfs exactly at PATH. */
bool mounts_is_clairfs(const char *path);
/* Process ids of the mounts: of the one at MOUNTPOINT (which may be a mount point, a
 * source, or a folder inside), or all when it is NULL. *PIDS is on the heap. False: none,
 * *STATUS set and a line on stderr. *INSIDE (may be NULL): the path below the mount point,
 * heap. */
bool mounts_find(const char *mountpoint, int **pids, size_t *count, char **inside,
		 int *status);

#endif
