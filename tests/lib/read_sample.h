/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef READ_SAMPLE_H
#define READ_SAMPLE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What readers of one pass saw. Times are of their own clock, added up over readers. */
struct read_totals {
	uint64_t files, bytes, errors;
	uint64_t hash;      /* of all paths and bytes, in whatever order they are read */
	int64_t io_ns;      /* in open, read and close */
	int64_t stall_ns;   /* what a file took above READ_PROMPT_NS, added up */
};
#define READ_PROMPT_NS 500000

/* A file's lines: paths, an empty line ends an epoch. Everything lives until the end. */
struct read_list {
	char **paths;
	size_t count;
	size_t *epoch_ends; /* one a pass */
	size_t epochs;
};
/* 0, or a negative errno. Epochs without a path are left out. */
int read_list_load(struct read_list *list, const char *file);

int64_t read_now_ns(void);
/* Opens PATH (relative to ROOT), reads it to its end in pieces of BLOCK bytes into BUFFER,
 * closes it. Errors are counted and told on stderr. */
void read_sample(int root, const char *path, char *buffer, size_t block, int flags,
		 struct read_totals *totals);
void read_totals_add(struct read_totals *to, const struct read_totals *from);
void read_totals_print(const struct read_totals *totals, size_t epoch, int64_t ns);

#endif
