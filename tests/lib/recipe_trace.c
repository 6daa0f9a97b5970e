/* SPDX-License-Identifier: BSD-3-Clause */
#include "recipe_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "index.h"

/* Room for one item more. */
static int grow(void *items, size_t count, size_t *room, size_t size)
{
	void **at = items;

	if (count < *room)
		return 0;
	size_t more = *room ? *room * 2 : 64;
	void *new = realloc(*at, more * size);
	if (!new)
		return -ENOMEM;
	*at = new;
	*room = more;
	return 0;
}

static int add_path(char ***paths, size_t *count, size_t *room, const char *path)
{
	int r = grow(paths, *count, room, sizeof **paths);
	char *copy = r == 0 ? strdup(path) : NULL;

	if (!copy)
		return -ENOMEM;
	(*paths)[(*count)++] = copy;
	return 0;
}

/* The newest text gets another line. */
static int add_line(struct recipe *x, const char *line)
{
	if (!x->text_count)
		return -EINVAL;
	char **text = &x->texts[x->text_count - 1];
	size_t length = strlen(*text), more = strlen(line);
	char *new = realloc(*text, length + more + 2);
	if (!new)
		return -ENOMEM;
	memcpy(new + length, line, more);
	memcpy(new + length + more, "\n", 2);
	*text = new;
	return 0;
}

static int add_open(struct recipe *x, const char *line)
{
	struct recipe_epoch *e = x->epoch_count ? &x->epochs[x->epoch_count - 1] : NULL;
	struct recipe_open open;

	if (!e || sscanf(line, "%u %u", &open.reader, &open.file) != 2 ||
	    open.reader >= x->reader_count || open.file >= x->file_count)
		return -EINVAL;
	int r = grow(&e->opens, e->count, &e->room, sizeof *e->opens);
	if (r == 0)
		e->opens[e->count++] = open;
	return r;
}

static int add_reader(struct recipe *x, const char *rank)
{
	int r = grow(&x->readers, x->reader_count, &x->reader_room, sizeof *x->readers);

	if (r == 0)
		x->readers[x->reader_count++] = (uint32_t)strtoul(rank, NULL, 10);
	return r;
}

static int add_epoch(struct recipe *x)
{
	int r = grow(&x->epochs, x->epoch_count, &x->epoch_room, sizeof *x->epochs);

	if (r == 0)
		x->epochs[x->epoch_count++] = (struct recipe_epoch){ 0 };
	return r;
}

static int parse_line(struct recipe *x, const char *line)
{
	if (*line >= '0' && *line <= '9')
		return add_open(x, line);
	if (!strncmp(line, "f ", 2))
		return add_path(&x->files, &x->file_count, &x->file_room, line + 2);
	if (!strncmp(line, "| ", 2))
		return add_line(x, line + 2);
	if (!strncmp(line, "t ", 2)) {
		int r = add_path(&x->texts, &x->text_count, &x->text_room, line + 2);
		return r == 0 ? add_path(&x->texts, &x->text_count, &x->text_room, "") : r;
	}
	if (!strncmp(line, "r ", 2))
		return add_reader(x, line + 2);
	if (!strcmp(line, "e"))
		return add_epoch(x);
	if (!strcmp(line, "hidden"))
		x->hidden = true;
	else if (!strcmp(line, "stay"))
		x->stay = true;
	else if (sscanf(line, "recipe %u %3s %63s", &x->number, x->kind, x->name) != 3 &&
		 sscanf(line, "world %u", &x->world) != 1 &&
		 sscanf(line, "index %63s", x->index) != 1)
		return -EINVAL;
	return 0;
}

int recipe_parse(FILE *in, struct recipe *x)
{
	autofree char *line = NULL;
	size_t room = 0;
	int r = 0;

	x->world = 1;
	while (r == 0 && getline(&line, &room, in) >= 0) {
		line[strcspn(line, "\n")] = '\0';
		r = parse_line(x, line);
	}
	return r == 0 && (!x->number || !x->epoch_count) ? -EINVAL : r;
}

void recipe_finish(struct recipe *x)
{
	for (size_t i = 0; i < x->file_count; i++)
		free(x->files[i]);
	for (size_t i = 0; i < x->text_count; i++)
		free(x->texts[i]);
	for (size_t i = 0; i < x->epoch_count; i++)
		free(x->epochs[i].opens);
	free(x->files);
	free(x->texts);
	free(x->readers);
	free(x->epochs);
	free(x->ids);
}

/* --- files -------------------------------------------------------------------------------------- */

static int make_file(int top, const char *path, const char *text)
{
	autofree char *folder = strdup(path);

	for (char *slash = folder; folder && (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdirat(top, folder, 0755) < 0 && errno != EEXIST)
			return -errno;
		*slash = '/';
	}
	autoclose int fd = openat(top, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	size_t size = text ? strlen(text) : 0;
	if (fd < 0)
		return -errno;
	return size && write(fd, text, size) != (ssize_t)size ? -EIO : 0;
}

int recipe_make_tree(const struct recipe *x, const char *top)
{
	autofree char *name = NULL;
	int r = 0;

	if (asprintf(&name, "%s/source", top) < 0 || mkdir(name, 0755) < 0)
		return -1;
	autoclose int fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (size_t i = 0; i < x->file_count && fd >= 0 && r == 0; i++)
		r = make_file(fd, x->files[i], NULL);
	for (size_t i = 0; i + 1 < x->text_count && fd >= 0 && r == 0; i += 2)
		r = make_file(fd, x->texts[i], x->texts[i + 1]);
	return fd >= 0 && r == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
}

int recipe_find_files(struct recipe *x, const struct clair_catalog *catalog)
{
	char *error = NULL;
	uint32_t count;

	if (*x->index) {
		int r = clair_index_make(catalog, 0, x->index, &x->ids, &count, &error);
		free(error);
		return r == 0 && count != x->file_count ? -EINVAL : r;
	}
	x->ids = malloc((x->file_count + 1) * sizeof *x->ids);
	for (size_t i = 0; x->ids && i < x->file_count; i++) {
		x->ids[i] = clair_catalog_find(catalog, x->files[i]);
		if (x->ids[i] == CLAIR_NO_ID)
			return -ENOENT;
	}
	return x->ids ? 0 : -ENOMEM;
}

int recipe_read(void *arg, uint32_t id, char **text, size_t *size)
{
	const struct recipe_source *s = arg;
	char path[4096];

	clair_catalog_path(s->catalog, id, path, sizeof path);
	autoclose int fd = openat(s->fd, path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	char *buffer = malloc((size_t)st.st_size + 1);
	ssize_t n = buffer ? read(fd, buffer, (size_t)st.st_size) : -1;
	if (n < 0) {
		free(buffer);
		return -EIO;
	}
	buffer[n] = '\0';
	*text = buffer;
	*size = (size_t)n;
	return 0;
}
