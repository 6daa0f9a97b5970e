/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TEST_RECIPE_TRACE_H
#define CLAIR_TEST_RECIPE_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "catalog.h"

/* A recipe's trace, as tests/recipes/README.md describes it. */

struct recipe_open {
	uint32_t reader, file; /* numbers */
};

struct recipe_epoch {
	struct recipe_open *opens;
	size_t count, room;
};

struct recipe {
	unsigned number, world;
	char kind[4], name[64], index[64]; /* INDEX "": files are numbered as listed */
	bool hidden; /* its seed is any of 2^31 or 2^32: readers take a while */
	bool stay;   /* the same processes read all epochs */
	char **files, **texts; /* paths; a text's contents come after it */
	size_t file_count, file_room, text_count, text_room;
	uint32_t *readers; /* ranks */
	size_t reader_count, reader_room;
	struct recipe_epoch *epochs;
	size_t epoch_count, epoch_room;
	uint32_t *ids; /* catalog ids of the files, by number */
};

/* 0, -EINVAL or -ENOMEM. */
int recipe_parse(FILE *in, struct recipe *recipe);
void recipe_finish(struct recipe *recipe);
/* Makes TOP/source with empty files and the texts: its descriptor or -1. */
int recipe_make_tree(const struct recipe *recipe, const char *top);
/* Fills ids. */
int recipe_find_files(struct recipe *recipe, const struct clair_catalog *catalog);

/* For clair_learn_config.read. */
struct recipe_source {
	const struct clair_catalog *catalog;
	int fd;
};
int recipe_read(void *arg, uint32_t id, char **text, size_t *size);

#endif
