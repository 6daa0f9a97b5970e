/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CONTROL_H
#define CLAIR_CONTROL_H

#include <jansson.h>

struct clair_mount;

/* A mount's control socket: PID.sock in $XDG_RUNTIME_DIR/clairfs, else in a 0700 folder
 * /tmp/clairfs-UID. One JSON object a line each way, one question a connection; only the
 * mount's user and root are answered.
 *
 * {"do": "status"}                             the report
 * {"do": "check"}                              + "changed": files that differ
 * {"do": "full"}                               {"full": true | false}
 * {"do": "set", "path": P, "word": W, "value": V}
 * {"do": "trace"}                              a line an open, until it is closed
 * {"do": "pause"}                              nothing is pushed from now on
 * Answers have "error" when it did not work, with "mistake": true for the user's. */
struct clair_control;

int clair_control_start(struct clair_mount *mount, struct clair_control **out);
/* Ends the thread, removes the socket; takes NULL. */
void clair_control_stop(struct clair_control *control);

/* --- clients --- */

/* Asks the mount of process PID. -ETIMEDOUT after TIMEOUT_MS, -ECONNREFUSED: no such. */
int clair_control_ask(int pid, const json_t *question, int timeout_ms, json_t **answer);
/* Connects, asks, and leaves the connection to the caller: a descriptor or -errno. */
int clair_control_connect(int pid, const json_t *question);
int clair_control_report(int pid, int timeout_ms, json_t **report);
/* Process ids of the user's mounts (root: everybody's), heap; stale sockets are removed. */
int clair_control_list(int **pids, size_t *count);

#endif
