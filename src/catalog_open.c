/* SPDX-License-Identifier: BSD-3-Clause */
#include "catalog_open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "log.h"

/* Where it is kept: heap, *FILE NULL when nowhere. */
static int file_of(const struct clair_options *options, char **file)
{
	*file = NULL;
	if (options->catalog)
		*file = strdup(options->catalog);
	else if (!options->cache_count)
		return 0;
	else if (asprintf(file, "%s/catalog", options->caches[0].path) < 0)
		*file = NULL;
	return *file ? 0 : -ENOMEM;
}

static void save(const struct clair_options *options, const char *file,
		 const struct clair_catalog *catalog)
{
	/* The tier makes its folder later; the catalog may be the first to need it. */
	if (!options->catalog && mkdir(options->caches[0].path, 0700) < 0 && errno != EEXIST)
		return; /* the tier will tell */
	int r = clair_catalog_save(catalog, file);
	if (r < 0)
		log_warning("catalog %s: %s, it is not saved", file, strerror(-r));
}

int clair_catalog_open(const struct clair_options *options, int root_fd,
		       const char *absolute, clair_walk_progress *progress, void *arg,
		       struct clair_catalog **out, bool *walked)
{
	struct clair_catalog *catalog = NULL;
	autofree char *file = NULL;
	bool loaded = false, foreign = false;

	int r = file_of(options, &file);
	if (r < 0)
		return r;
	if (file) {
		r = clair_catalog_load(file, root_fd, &catalog);
		loaded = r == 0;
		foreign = r == -EILSEQ;
		if (r == -ESTALE)
			log_info("catalog %s: the source has changed, it is read again",
				 file);
		else if (foreign)
			log_warning("catalog %s: this file is no catalog, it is left alone",
				    file);
		else if (r < 0 && r != -ENOENT)
			log_warning("catalog %s: %s, the source is read again", file,
				    r == -EBADMSG ? "damaged" : strerror(-r));
	}
	if (!loaded)
		r = clair_catalog_walk(root_fd, 0, progress, arg, &catalog);
	if (r < 0)
		return r;
	r = clair_catalog_set_root_path(catalog, absolute);
	if (r < 0) {
		clair_catalog_free(catalog);
		return r;
	}
	if (!loaded && !foreign && file)
		save(options, file, catalog);
	if (walked)
		*walked = !loaded;
	*out = catalog;
	return 0;
}
