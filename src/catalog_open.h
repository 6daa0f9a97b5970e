/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CATALOG_OPEN_H
#define CLAIR_CATALOG_OPEN_H

#include <stdbool.h>

#include "catalog.h"
#include "options.h"

/* The catalog of the source ROOT_FD at ABSOLUTE: from the file that the options name
 * (catalog=FILE, else `catalog` in the first cache folder) when it is valid, else by a
 * walk, and then that file is written. A file that cannot be read or written is told in
 * the log, and is no failure. *WALKED (or NULL): whether the source was walked. 0 or the
 * walk's errno. */
int clair_catalog_open(const struct clair_options *options, int root_fd,
		       const char *absolute, clair_walk_progress *progress, void *arg,
		       struct clair_catalog **out, bool *walked);

#endif
