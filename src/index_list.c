/* SPDX-License-Identifier: BSD-3-Clause */
#include "index_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "sampler.h"
#include "words.h"

/* Cuts field COLUMN out of a CSV line, in place; NULL when there are fewer. Quotes as RFC
 * 4180 has them. */
static char *field_of(char *line, unsigned column)
{
	char *p = line;

	for (unsigned i = 0;; i++) {
		char *begin = p, *to = p;
		bool quoted = *p == '"';

		if (quoted)
			p++;
		for (; *p && (quoted || *p != ','); p++) {
			if (quoted && *p == '"') {
				if (p[1] != '"') {
					quoted = false;
					continue;
				}
				p++;
			}
			*to++ = *p;
		}
		bool last = !*p;
		if (!last)
			p++;
		*to = '\0';
		if (i == column)
			return begin;
		if (last)
			return NULL;
	}
}

static int column_of(const char *header, const char *name, unsigned *column)
{
	char *end;

	*column = (unsigned)strtoul(name, &end, 10);
	if (end != name && !*end)
		return 0;
	for (unsigned i = 0;; i++) {
		autofree char *line = strdup(header);
		const char *field = line ? field_of(line, i) : NULL;
		if (!field)
			return -ENOENT;
		if (!strcmp(field, name)) {
			*column = i;
			return 1;
		}
	}
}

uint32_t clair_index_find_path(const struct clair_catalog *c, uint32_t folder,
			       const char *path)
{
	char full[8192];
	size_t n = clair_catalog_path(c, folder, full, sizeof full);
	uint32_t id = CLAIR_NO_ID;

	while (path[0] == '.' && path[1] == '/')
		path += 2;
	if (folder && n + strlen(path) + 2 < sizeof full) {
		full[n] = '/';
		strcpy(full + n + 1, path);
		id = clair_catalog_find_through(c, full);
	}
	return id == CLAIR_NO_ID ? clair_catalog_find_through(c, path) : id;
}

static bool is_folder(const struct clair_catalog *c, uint32_t id)
{
	uint32_t to = clair_catalog_resolve(c, id);

	return to != CLAIR_NO_ID && clair_catalog_entry(c, to)->kind == CLAIR_FOLDER;
}

static int read_list(FILE *f, const char *file, const char *column_name,
		     const struct clair_catalog *c, uint32_t folder,
		     struct clair_indices *list, char **error)
{
	autofree char *line = NULL;
	size_t room = 0, number = 0;
	unsigned column = 0;
	ssize_t n;

	while ((n = getline(&line, &room, f)) >= 0) {
		char *path = line;

		number++;
		line[strcspn(line, "\r\n")] = '\0';
		if (column_name && number == 1) {
			int r = column_of(line, column_name, &column);
			if (r < 0)
				return clair_bad(error,
						 "index=list:%s:%s: the file has no column "
						 "of this name",
						 file, column_name);
			if (r > 0)
				continue; /* the header named it */
		}
		if (column_name)
			path = field_of(line, column);
		if (!path || !*path)
			continue;
		uint32_t id = clair_index_find_path(c, folder, path);
		if (id == CLAIR_NO_ID || is_folder(c, id))
			return clair_bad(error,
					 "index=list:%s: line %zu, '%s', is no file of the "
					 "source",
					 file, number, path);
		if (clair_indices_append(list, id) < 0)
			return -ENOMEM;
	}
	return 0;
}

int clair_index_list(const struct clair_catalog *catalog, uint32_t folder, const char *spec,
		     uint32_t **ids, uint32_t *count, char **error)
{
	autofree char *file = strdup(spec);
	struct clair_indices list = { 0 };
	char *column = NULL;

	if (!file)
		return -ENOMEM;
	char *colon = strrchr(file, ':');
	if (colon && access(file, R_OK) < 0) {
		*colon = '\0';
		column = colon + 1;
	}
	autofclose FILE *f = fopen(file, "re");
	if (!f)
		return clair_bad(error, "index=list:%s: %s", spec,
				 *spec ? strerror(errno) : "give the file of the list after list:");
	int r = read_list(f, file, column, catalog, folder, &list, error);
	if (r == 0 && !list.count)
		r = clair_bad(error, "index=list:%s: the list is empty", spec);
	if (r < 0) {
		clair_indices_finish(&list);
		return r;
	}
	*ids = list.at;
	*count = (uint32_t)list.count;
	return 0;
}
