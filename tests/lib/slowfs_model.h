/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SLOWFS_MODEL_H
#define SLOWFS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What a slow shared file system costs, what goes wrong in it, and what was asked of it.
 * All functions may be called by any thread. */

enum slow_op { SLOW_GETATTR, SLOW_READLINK, SLOW_READDIR, SLOW_OPEN, SLOW_READ, SLOW_XATTR, SLOW_OPS };

enum slow_fault { SLOW_NONE, SLOW_ERRNO, SLOW_HANG, SLOW_SHORT, SLOW_DELAY, SLOW_GARBLE };

struct slow_verdict {
	enum slow_fault fault;
	int value; /* errno, or milliseconds of a delay */
};

/* KEY=VALUE: latency (µs an operation), bandwidth (bytes/s with suffix k, M, G; or a table
 * "1:50M,4:120M" of t(clients)), metadata (operations/s). -EINVAL when it is none of them. */
int slow_set(const char *key, const char *value);

/* Adds a fault: "KIND [op=NAME] [path=GLOB] [from=N] [count=M]", KIND being eio, estale,
 * errno:N, hang[:MS] (15 s: a client of a hanging call cannot be killed), short, garble,
 * delay:MS. From the N-th (1) matching call on, M (all) calls. */
int slow_fault_add(const char *text);
void slow_fault_clear(void); /* lets hanging calls go on, too */
void slow_stop(void);        /* the same, for good */

/* Counts a call and waits for what it costs, except for a read's bytes. The caller acts by
 * the verdict; hangs and delays are over when this returns. */
struct slow_verdict slow_enter(enum slow_op op, const char *path);
/* Waits until BYTES have come through the shared bandwidth, and counts them. */
void slow_transfer(const char *path, size_t bytes);

void slow_report(FILE *out);       /* JSON */
void slow_report_files(FILE *out); /* a line a file: opens reads bytes path */
void slow_reset(void);             /* counters to 0 */

#endif
