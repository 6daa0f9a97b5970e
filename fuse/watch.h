/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_WATCH_H
#define CLAIR_WATCH_H

#include "mount.h"

/* Sees readers' opens through inotify, without a request. */
struct clair_watch;

/* Starts the thread; the session must be served by then. It watches every folder that has
 * files. Where inotify cannot, mount->answer_opens is set and opens are answered; *OUT is NULL
 * where there is no inotify at all, which all of these take. */
int clair_watch_start(struct clair_mount *mount, struct clair_watch **out);
/* Waits until the watches are set. */
void clair_watch_wait(struct clair_watch *watch);
/* Waits until the opens that readers have made so far are counted, at most MS. */
void clair_watch_settle(struct clair_watch *watch, int ms);
/* Ends the thread and frees; takes NULL. */
void clair_watch_stop(struct clair_watch *watch);

#endif
