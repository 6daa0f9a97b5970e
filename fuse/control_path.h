/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CONTROL_PATH_H
#define CLAIR_CONTROL_PATH_H

#include <stddef.h>

/* The control socket of process PID; its folder is made (0700). -EACCES when the folder
 * in /tmp belongs to somebody else. */
int clair_control_path(int pid, char *path, size_t size);

#endif
