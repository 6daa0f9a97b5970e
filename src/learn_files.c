/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists of files that were learnt: where they lie, how they are written. */
#include "learn_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

bool clair_learn_is_below(const struct clair_catalog *c, uint32_t id, uint32_t folder)
{
	while (id > folder)
		id = clair_catalog_entry(c, id)->parent;
	return id == folder;
}

uint32_t clair_learn_folder(const struct clair_catalog *c, const uint32_t *files, size_t count)
{
	uint32_t folder = clair_catalog_entry(c, files[0])->parent;

	for (size_t i = 1; i < count; i++)
		while (!clair_learn_is_below(c, files[i], folder))
			folder = clair_catalog_entry(c, folder)->parent;
	return folder;
}

int clair_learn_write_list(const struct clair_catalog *c, const char *file, uint32_t folder,
			   const uint32_t *files, size_t count)
{
	autofree char *temporary = NULL;
	char path[8192];
	size_t skip = clair_catalog_path(c, folder, path, sizeof path);
	int r = 0;

	if (asprintf(&temporary, "%s.%d", file, (int)getpid()) < 0)
		return -ENOMEM;
	autofclose FILE *f = fopen(temporary, "we");
	if (!f)
		return -errno;
	for (size_t i = 0; i < count && r == 0; i++) {
		size_t n = clair_catalog_path(c, files[i], path, sizeof path);

		if (n >= sizeof path || strpbrk(path, "\r\n"))
			r = -EINVAL;
		else if (fprintf(f, "%s\n", path + (skip ? skip + 1 : 0)) < 0)
			r = -EIO;
	}
	if (r == 0 && fflush(f) != 0)
		r = -EIO;
	if (r == 0 && rename(temporary, file) < 0)
		r = -errno;
	if (r < 0)
		unlink(temporary);
	return r;
}
