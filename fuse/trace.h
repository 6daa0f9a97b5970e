/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TRACE_H
#define CLAIR_TRACE_H

#include <stdint.h>
#include <sys/types.h>

struct clair_mount;

/* `clairfs trace`: one watcher sees readers' opens, a line each: `PID PATH`, or PATH when the
 * opener is not known. A watcher that is too slow loses lines; it holds nobody up. */

/* SOCKET is taken; an earlier watcher is dismissed. */
void clair_trace_start(struct clair_mount *mount, int socket);
void clair_trace_open(struct clair_mount *mount, pid_t pid, uint32_t id);

#endif
