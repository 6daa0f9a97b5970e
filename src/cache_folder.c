/* SPDX-License-Identifier: BSD-3-Clause */
#include "cache_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static int make_folder(const char *path)
{
	return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

int clair_cache_file(const char *name, bool make, char *path, size_t size)
{
	const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
	bool given = cache && *cache == '/';
	int r = 0, base;

	if (!given && (!home || *home != '/'))
		return -ENOENT;
	base = snprintf(path, size, "%s%s", given ? cache : home, given ? "" : "/.cache");
	if (base < (int)size && make)
		r = make_folder(path);
	if (base < (int)size)
		base += snprintf(path + base, size - (size_t)base, "/clairfs");
	if (r == 0 && base < (int)size && make)
		r = make_folder(path);
	if (base < (int)size)
		base += snprintf(path + base, size - (size_t)base, "/%s", name);
	return base < (int)size ? r : -ENAMETOOLONG;
}
