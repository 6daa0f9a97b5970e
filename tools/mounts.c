/* SPDX-License-Identifier: BSD-3-Clause */
#include "mounts.h"

#include <errno.h>
#include <jansson.h>
#include <mntent.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "cli.h"
#include "control.h"

bool mounts_is_clairfs(const char *path)
{
	FILE *f = setmntent("/proc/self/mounts", "r");
	bool found = false;

	for (struct mntent *e; f && (e = getmntent(f));)
		if (!strcmp(e->mnt_dir, path))
			found = !strcmp(e->mnt_type, "fuse.clairfs");
	if (f)
		endmntent(f);
	return found;
}

/* PATH below POINT: what follows it, "" for the point itself, NULL when it is not. */
static const char *below(const char *path, const char *point)
{
	size_t n = strlen(point);

	if (strncmp(path, point, n) || (path[n] && path[n] != '/'))
		return NULL;
	return path[n] ? path + n + 1 : path + n;
}

static bool has_pid(const int *pids, size_t count, int pid)
{
	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

bool mounts_find(const char *mountpoint, int **pids, size_t *count, char **inside,
		 int *status)
{
	autofree int *all = NULL;
	autofree char *path = mountpoint ? realpath(mountpoint, NULL) : NULL;
	size_t n, best = 0;

	if (mountpoint && !path) {
		*status = cli_mistake("%s: %s", mountpoint, strerror(errno));
		return false;
	}
	int r = clair_control_list(&all, &n);
	if (r < 0) {
		*status = cli_failure("the mounts cannot be listed: %s", strerror(-r));
		return false;
	}
	*count = 0;
	for (size_t i = 0; i < n; i++) {
		json_t *report = NULL;
		const char *point, *rest;

		if (!mountpoint) {
			/* Root's runtime folder is looked into as that of a user, too. */
			if (!has_pid(all, *count, all[i]))
				all[(*count)++] = all[i];
			continue;
		}
		if (clair_control_report(all[i], 5000, &report) < 0)
			continue;
		point = json_string_value(json_object_get(report, "mountpoint"));
		rest = point ? below(path, point) : NULL;
		/* The deepest one that has it. */
		if (rest && strlen(point) >= best) {
			best = strlen(point);
			all[0] = all[i];
			*count = 1;
			if (inside) {
				free(*inside);
				*inside = strdup(rest);
			}
		}
		json_decref(report);
	}
	if (!*count) {
		*status = mountpoint ?
				  cli_mistake("%s: no clairfs is mounted there", mountpoint) :
				  cli_failure("no clairfs is mounted");
		return false;
	}
	*pids = take_ptr(all);
	return true;
}
