/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_CALIBRATE_H
#define CLAIR_CALIBRATE_H

#include <stdbool.h>

#include "catalog.h"
#include "model.h"
#include "source.h"

/* Measures the bandwidths of the model on this host, and keeps them for its mounts. */

/* The source, with 1, 2, 4 … THREADS readers at once, SECONDS each: adds a point a number to
 * CURVE (bytes/s of all together). Files are taken evenly over the catalog, none twice. 0,
 * -ENODATA (no files, or they are too few to measure), or the source's errno. */
int clair_calibrate_source(struct clair_source *source, const struct clair_catalog *catalog,
			   unsigned threads, double seconds, struct clair_curve *curve);
/* Memory: bytes/s that are copied by one thread. */
double clair_calibrate_memory(void);
/* A folder on a local disk: writes and reads a file of BYTES past the page cache where that
 * works. Points at one thread. 0 or a negative errno. */
int clair_calibrate_folder(const char *folder, uint64_t bytes,
			   struct clair_model_class *class);

/* Where this host's measurements of the source at ABSOLUTE are kept: under
 * $XDG_CACHE_HOME/clairfs, by host and path (MAKE: its folders are made). 0 or a negative errno. */
int clair_calibrate_path(const char *absolute, bool make, char *path, size_t size);
int clair_calibrate_save(const char *file, const struct clair_model *model);
/* -ENOENT: not measured yet; -EBADMSG: damaged. */
int clair_calibrate_load(const char *file, struct clair_model *model);

#endif
