/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_OPTIONS_H
#define CLAIR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "words.h"

/* Everything that can be given by -o, in an INI file's [clairfs] section, or (what
 * describes the order) as an extended attribute: the same words. */

enum clair_keep { CLAIR_KEEP_AUTO, CLAIR_KEEP_KERNEL, CLAIR_KEEP_ARENA };

struct clair_cache_option {
	char *path; /* absolute, without a slash at the end */
	uint64_t bytes;
};

struct clair_stream_option {
	char *path; /* relative to the source, without leading or trailing slashes */
	struct clair_words words;
};

struct clair_options {
	struct clair_words order; /* words that describe the order, for all streams */
	struct clair_stream_option *streams;
	size_t stream_count;
	uint64_t ram, staging; /* bytes */
	struct clair_cache_option *caches;
	size_t cache_count;
	uint64_t free_bytes; /* floor of free space in a cache's file system */
	unsigned threads;    /* staging threads, 0: decided from measurements */
	unsigned discover_threads; /* 0: one less than the cores, at least 1 */
	char *catalog;       /* FILE (absolute) or NULL */
	bool writable, read_only;
	enum clair_keep keep; /* where kept samples live: the kernel's pages or an arena */
	bool peers;          /* other nodes of the job are used */
	char *placement;     /* a clair_policy's name, or NULL */
	char *log;           /* or NULL */
	char *fuse;          /* comma-separated words for libfuse (allow_other,fsname=…) */
};

/* Sets the defaults (ram 10 %, staging 5 % of the smaller of memory and cgroup limit). */
int clair_options_init(struct clair_options *options);
void clair_options_finish(struct clair_options *options);
/* Adds what one -o gave: `word=value,word=value` (a comma in a value is written `\,`).
 * Files are made absolute by the current folder. 0, -ENOMEM, or -EINVAL with *error: one line that names the word and what is right. */
int clair_options_add(struct clair_options *options, const char *text, char **error);
/* Reads the [clairfs] section of an INI file (what -o config=FILE does). */
int clair_options_read_file(struct clair_options *options, const char *file, char **error);
/* world and ranks from Slurm, Open MPI, PMI, torchrun, where they were not given. */
int clair_options_environment(struct clair_options *options);
/* What can be said only when all is known (epochs < epoch, two caches in one place, …). */
int clair_options_check(const struct clair_options *options, char **error);
/* Adds to WORDS what holds for the stream of PATH (as in struct clair_stream_option): the
 * words for all streams as far as its sampler has them, then its own. 0 or -ENOMEM. */
int clair_options_stream_words(const struct clair_options *options, const char *path,
			       struct clair_words *words);
/* Whether WORD is one that every stream may have, whatever its sampler. */
bool clair_options_is_common_word(const char *word);
/* Whether WORD describes an order, so that it may be set at run time. */
bool clair_options_is_order_word(const char *word);
/* Whether WORDS say an order, as far as one can be known: a seed or a sampler. */
bool clair_options_says_order(const struct clair_words *words);
/* Checks one order word's value as far as it can be without a sampler. */
int clair_options_check_word(const char *word, const char *value, char **error);
/* Checks an order word and puts it into WORDS under its proper name (rank is ranks), with
 * files made absolute. */
int clair_options_set_order_word(struct clair_words *words, const char *word,
				 const char *value, char **error);
/* Whether the options go with the source at ABSOLUTE: no cache folder lies in it. 0 or
 * -EINVAL with *error. */
int clair_options_check_source(const struct clair_options *options, const char *absolute,
			       char **error);
/* "512M", "2G", "1.5T", "10%" (of MEMORY), plain bytes; K = 1024. 0 or -EINVAL. */
int clair_size_parse(const char *text, uint64_t memory, uint64_t *bytes);
/* `0`, `0-3`, `0,2`: ascending without doubles, heap. */
int clair_ranks_parse(const char *text, uint32_t world, uint32_t **ranks, size_t *count,
		      char **error);
/* The ranks of node K of N where each has as many of WORLD: `FIRST-LAST`. False: they do not go
 * evenly. */
bool clair_ranks_share(uint64_t world, uint64_t n, uint64_t k, char *text, size_t size);
/* The smaller of the machine's memory and the cgroup's limit, bytes. */
uint64_t clair_memory_limit(void);

#endif
