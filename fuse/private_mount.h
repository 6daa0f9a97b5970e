/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_PRIVATE_MOUNT_H
#define CLAIR_PRIVATE_MOUNT_H

#include <stdbool.h>

/* A mount over a folder that only the calling process and its children see. */

/* Puts the calling process (which must have one thread) into a mount namespace of its own
 * (an ordinary user also into a user namespace that maps the own user and group to
 * themselves), opens /dev/fuse and mounts it over the folder PATH (absolute). On success
 * *FUSE_FD is the descriptor to serve, *ROOT_FD (O_PATH) the mount's root; the caller owns
 * both. Once it is served the caller enters its working directory again, since that may
 * lie below PATH. The process's capabilities in its user namespace end with the next
 * exec.
 * 0 or a negative errno with *error, one line (heap). */
int clair_private_mount(const char *path, bool read_only, int *fuse_fd, int *root_fd,
			char **error);

/* Descriptors of the namespaces of process PID (its child), kept by a supervisor: *USER_FD
 * is -1 when it is the caller's own user namespace. 0 or a negative errno. */
int clair_private_namespaces(int pid, int *user_fd, int *mount_fd);

/* Uncovers PATH inside these namespaces (lazily), from a short-lived child: for a mount
 * whose daemon died (its threads may hang in requests to themselves: those are failed). 0 or
 * a negative errno. */
int clair_private_unmount(int user_fd, int mount_fd, const char *path);

#endif
