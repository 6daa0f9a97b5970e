/* SPDX-License-Identifier: BSD-3-Clause */
/* Sizes, lists of ranks, and how much memory there is. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "options.h"

int clair_size_parse(const char *text, uint64_t memory, uint64_t *bytes)
{
	static const char units[] = "KMGTP";
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	double v = strtod(text, &end);
	if (*end == '%') {
		if (end[1] || v > 100)
			return -EINVAL;
		*bytes = (uint64_t)(v / 100 * (double)memory);
		return 0;
	}
	double scale = 1;
	if (*end) {
		const char *unit = strchr(units, *end & ~0x20);
		if (!unit)
			return -EINVAL;
		for (const char *u = units; u <= unit; u++)
			scale *= 1024;
		end++;
		if (!strcmp(end, "iB") || !strcmp(end, "B"))
			end += strlen(end);
	}
	if (*end || v * scale >= 9e18)
		return -EINVAL;
	*bytes = (uint64_t)(v * scale);
	return 0;
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int clair_ranks_parse(const char *text, uint32_t world, uint32_t **ranks, size_t *count,
		      char **error)
{
	autofree uint32_t *list = NULL;
	size_t n = 0;

	for (const char *p = text;;) {
		char *end;
		unsigned long first, last;

		if (*p < '0' || *p > '9')
			return clair_bad(error, "ranks=%s: must be like 0, 0-3 or 0,2", text);
		first = last = strtoul(p, &end, 10);
		if (*end == '-') {
			p = end + 1;
			if (*p < '0' || *p > '9')
				return clair_bad(error,
						 "ranks=%s: must be like 0, 0-3 or 0,2", text);
			last = strtoul(p, &end, 10);
		}
		if (last < first || last >= world)
			return clair_bad(error, "ranks=%s: with world=%u ranks are 0 to %u",
					 text, world, world - 1);
		uint32_t *longer = realloc(list, (n + last - first + 1) * sizeof *list);
		if (!longer)
			return -ENOMEM;
		list = longer;
		while (first <= last)
			list[n++] = (uint32_t)first++;
		if (!*end)
			break;
		if (*end != ',' && *end != '+')
			return clair_bad(error, "ranks=%s: must be like 0, 0-3 or 0,2", text);
		p = end + 1;
	}
	qsort(list, n, sizeof *list, by_number);
	size_t kept = 0;
	for (size_t i = 0; i < n; i++)
		if (!kept || list[kept - 1] != list[i])
			list[kept++] = list[i];
	*ranks = take_ptr(list);
	*count = kept;
	return 0;
}

static void lower_to(const char *file, uint64_t *limit)
{
	autofclose FILE *f = fopen(file, "re");
	unsigned long long v;

	if (f && fscanf(f, "%llu", &v) == 1 && v < *limit)
		*limit = v; /* "max" is not a number */
}

/* The limits of the process's cgroup and of all above it. */
static void cgroup_limit(uint64_t *limit)
{
	autofclose FILE *f = fopen("/proc/self/cgroup", "re");
	char line[PATH_MAX], file[PATH_MAX + 64];

	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		char *controllers = strchr(line, ':');
		char *path = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = '\0';
		bool v2 = !controllers[1];
		if (!v2 && !strstr(controllers, "memory"))
			continue;
		for (;;) {
			snprintf(file, sizeof file, "/sys/fs/cgroup/%s%s/%s",
				 v2 ? "" : "memory/", path,
				 v2 ? "memory.max" : "memory.limit_in_bytes");
			lower_to(file, limit);
			char *slash = strrchr(path, '/');
			if (!slash)
				break;
			*slash = '\0';
		}
	}
}

uint64_t clair_memory_limit(void)
{
	uint64_t limit =
		(uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	cgroup_limit(&limit);
	return limit;
}

bool clair_ranks_share(uint64_t world, uint64_t n, uint64_t k, char *text, size_t size)
{
	uint64_t each = n ? world / n : 0;

	if (!each || world % n || k >= n)
		return false;
	snprintf(text, size, "%llu-%llu", (unsigned long long)(k * each),
		 (unsigned long long)(k * each + each - 1));
	return true;
}
