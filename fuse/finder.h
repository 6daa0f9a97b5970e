/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_FINDER_H
#define CLAIR_FINDER_H

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

struct clair_mount;
struct clair_words;

/* Finds the order of a mount that was given none, by its seed (discover.h) or by what it is seen
 * to do (learn.h): while it looks, opens are answered by the daemon, since they bring the
 * opener; once it knows, they cease to reach it. When the opens stop following what was
 * found, it looks again. */
struct clair_finder;

/* Does nothing (and *OUT = NULL) when the options say the order. */
int clair_finder_start(struct clair_mount *mount, struct clair_finder **out);
/* An open of a reader; PID 0: unknown. Takes a NULL finder. */
void clair_finder_open(struct clair_finder *finder, pid_t pid, uint32_t id);
/* Another node of the job found the order of the stream of FOLDER: ANSWER, with this node's
 * ranks. Takes a NULL finder. */
void clair_finder_told(struct clair_finder *finder, uint32_t folder,
		       const struct clair_words *answer);
/* The order was set while mounted (`clairfs set`, an attribute): it is not looked for any more.
 * Before the stream is made. Takes NULL. */
void clair_finder_given(struct clair_finder *finder);
/* What it is thinking, for status: a new object, NULL when there is no finder. */
json_t *clair_finder_json(struct clair_finder *finder);
/* Remembers what the next run can use. Takes NULL. */
void clair_finder_stop(struct clair_finder *finder);

#endif
