/* SPDX-License-Identifier: BSD-3-Clause */
#include "read_sample.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static int append(char ***paths, size_t *count, char *path)
{
	if (!(*count & (*count - 1))) {
		char **more = realloc(*paths, (*count ? *count * 2 : 1) * sizeof **paths);

		if (!more)
			return -ENOMEM;
		*paths = more;
	}
	(*paths)[(*count)++] = path;
	return 0;
}

static int end_epoch(struct read_list *list)
{
	size_t begin = list->epochs ? list->epoch_ends[list->epochs - 1] : 0;

	if (list->count == begin)
		return 0;
	size_t *more = realloc(list->epoch_ends, (list->epochs + 1) * sizeof *more);
	if (!more)
		return -ENOMEM;
	list->epoch_ends = more;
	more[list->epochs++] = list->count;
	return 0;
}

int read_list_load(struct read_list *list, const char *file)
{
	FILE *in = strcmp(file, "-") ? fopen(file, "r") : stdin;
	int r = in ? 0 : -errno;

	while (!r) {
		char *line = NULL;
		size_t size = 0;
		ssize_t n = getline(&line, &size, in);

		if (n < 0) {
			free(line);
			break;
		}
		line[strcspn(line, "\n")] = '\0';
		if (*line) {
			r = append(&list->paths, &list->count, line);
		} else {
			free(line);
			r = end_epoch(list);
		}
	}
	if (in && in != stdin)
		fclose(in);
	return r ? r : end_epoch(list);
}

int64_t read_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

void read_sample(int root, const char *path, char *buffer, size_t block, int flags,
		 struct read_totals *totals)
{
	XXH3_state_t *state = XXH3_createState();
	int64_t begin = read_now_ns(), hashing = 0;
	int fd = openat(root, path, O_RDONLY | O_CLOEXEC | flags);
	ssize_t n = -1;

	XXH3_64bits_reset(state);
	XXH3_64bits_update(state, path, strlen(path));
	while (fd >= 0 && (n = read(fd, buffer, block)) > 0) {
		int64_t t = read_now_ns();

		XXH3_64bits_update(state, buffer, (size_t)n);
		totals->bytes += (uint64_t)n;
		hashing += read_now_ns() - t;
	}
	if (n < 0) {
		totals->errors++;
		fprintf(stderr, "%s: %m\n", path);
	} else {
		totals->hash += XXH3_64bits_digest(state);
	}
	if (fd >= 0)
		close(fd);
	int64_t took = read_now_ns() - begin - hashing;
	totals->files++;
	totals->io_ns += took;
	if (took > READ_PROMPT_NS)
		totals->stall_ns += took - READ_PROMPT_NS;
	XXH3_freeState(state);
}

void read_totals_add(struct read_totals *to, const struct read_totals *from)
{
	to->files += from->files;
	to->bytes += from->bytes;
	to->errors += from->errors;
	to->hash += from->hash;
	to->io_ns += from->io_ns;
	to->stall_ns += from->stall_ns;
}

void read_totals_print(const struct read_totals *totals, size_t epoch, int64_t ns)
{
	double seconds = (double)ns / 1e9;

	printf("{ \"epoch\": %zu, \"files\": %" PRIu64 ", \"bytes\": %" PRIu64
	       ", \"errors\": %" PRIu64 ", \"seconds\": %.4f, \"files_s\": %.1f, "
	       "\"mb_s\": %.2f, \"io_s\": %.4f, \"stall_s\": %.4f, \"us_per_file\": %.2f, "
	       "\"hash\": \"%016" PRIx64 "\" }\n",
	       epoch, totals->files, totals->bytes, totals->errors, seconds,
	       (double)totals->files / seconds, (double)totals->bytes / seconds / 1e6,
	       (double)totals->io_ns / 1e9, (double)totals->stall_ns / 1e9,
	       (double)totals->io_ns / 1e3 / (double)(totals->files ? totals->files : 1),
	       totals->hash);
	fflush(stdout);
}
