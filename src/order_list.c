/* SPDX-License-Identifier: BSD-3-Clause */
#include "order_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"

struct state {
	uint32_t world;
	struct clair_indices lines; /* all epochs, one after the other */
	size_t *ends;               /* of each epoch in lines */
	size_t epochs;
};

static void list_close(void *p)
{
	struct state *s = p;

	if (!s)
		return;
	clair_indices_finish(&s->lines);
	free(s->ends);
	free(s);
}

static int end_epoch(struct state *s)
{
	size_t begin = s->epochs ? s->ends[s->epochs - 1] : 0;

	if (s->lines.count == begin)
		return 0;
	size_t *ends = realloc(s->ends, (s->epochs + 1) * sizeof *ends);
	if (!ends)
		return -ENOMEM;
	s->ends = ends;
	ends[s->epochs++] = s->lines.count;
	return 0;
}

static int parse_index(const char *line, uint32_t n, uint32_t *index)
{
	char *end;

	if (*line < '0' || *line > '9')
		return -EINVAL;
	unsigned long long v = strtoull(line, &end, 10);
	if (*end || v >= n)
		return -EINVAL;
	*index = (uint32_t)v;
	return 0;
}

static int read_lines(struct state *s, FILE *f, const char *file, uint32_t n,
		      int (*path_index)(void *arg, const char *path, uint32_t *index),
		      void *arg, char **error)
{
	autofree char *line = NULL;
	size_t room = 0, number = 0;
	ssize_t length;
	int r = 0;

	while (r == 0 && (length = getline(&line, &room, f)) >= 0) {
		uint32_t index;

		number++;
		while (length && (line[length - 1] == '\n' || line[length - 1] == '\r'))
			line[--length] = '\0';
		if (!length) {
			r = end_epoch(s);
			continue;
		}
		/* A name may look like a number: paths come first. */
		if ((!path_index || path_index(arg, line, &index) < 0) &&
		    parse_index(line, n, &index) < 0)
			return clair_bad(error,
					 "sampler=list:%s: line %zu, '%s', is neither a "
					 "path of a sample nor an index below %u",
					 file, number, line, n);
		r = clair_indices_append(&s->lines, index);
	}
	if (r == 0)
		r = end_epoch(s);
	return r;
}

int clair_order_list_open(const char *file, const struct clair_order_params *params,
			  int (*path_index)(void *arg, const char *path, uint32_t *index),
			  void *arg, void **out, char **error)
{
	autofclose FILE *f = fopen(file, "re");

	if (!f)
		return clair_bad(error, "sampler=list:%s: %s", file, strerror(errno));
	struct state *s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->world = params->world;
	int r = read_lines(s, f, file, params->n, path_index, arg, error);
	if (r == 0 && !s->epochs)
		r = clair_bad(error, "sampler=list:%s: the list is empty", file);
	if (r < 0) {
		list_close(s);
		return r;
	}
	*out = s;
	return 0;
}

static int list_epoch(void *p, uint64_t epoch, uint32_t rank, struct clair_indices *out)
{
	const struct state *s = p;
	size_t e = epoch < s->epochs ? epoch : s->epochs - 1;
	int r = 0;

	for (size_t i = (e ? s->ends[e - 1] : 0) + rank; i < s->ends[e] && r == 0;
	     i += s->world)
		r = clair_indices_append(out, s->lines.at[i]);
	return r;
}

static const struct clair_family_word words[] = { { NULL } };

const struct clair_family clair_family_list = {
	.name = "list:FILE",
	.help = "the lines of FILE (index or path), an empty line between epochs",
	.versions = "",
	.words = words,
	.epoch = list_epoch,
	.close = list_close,
};
