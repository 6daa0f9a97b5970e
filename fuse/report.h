/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_REPORT_H
#define CLAIR_REPORT_H

#include <jansson.h>
#include <stdio.h>

struct clair_mount;

/* The report of the interface: a new reference, NULL without memory. */
json_t *clair_report_json(struct clair_mount *mount);
/* What other nodes are told: counters, without epochs' history. */
json_t *clair_report_short(struct clair_mount *mount);
/* The same as text of at most SIZE bytes (heap): oldest epochs are left out first. */
char *clair_report_text(struct clair_mount *mount, size_t size);
/* For people: a few lines. */
void clair_report_print(const json_t *report, FILE *f);

#endif
