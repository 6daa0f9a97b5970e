/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_STREAM_H
#define CLAIR_STREAM_H

#include <stdbool.h>

#include "catalog.h"
#include "sampler.h"

/* One loader's walk over one set of samples: dataset order + split + sampler + world +
 * epochs. What the words do not say is unknown, and then the stream has no order. Owned
 * by one thread at a time (the stage guards it by the stream's lock). */
struct clair_stream;

/* FOLDER: catalog id of the stream's folder. WORDS are copied. `seed=auto` (or none) and
 * no sampler, or `sampler=auto` without a seed: an unknown order, which is not an error;
 * a seed without a sampler means torch-distributed; sampler=sequential needs no seed.
 * 0, -ENOMEM, or -EINVAL with *error. */
int clair_stream_new(const struct clair_catalog *catalog, uint32_t folder,
		     const struct clair_words *words, struct clair_stream **out,
		     char **error);
/* The same for N samples that are only numbers: "ids" are indices of the dataset order. */
int clair_stream_new_numbers(uint32_t n, const struct clair_words *words,
			     struct clair_stream **out, char **error);
void clair_stream_free(struct clair_stream *stream);

bool clair_stream_known(const struct clair_stream *stream);
uint32_t clair_stream_folder(const struct clair_stream *stream);
const struct clair_words *clair_stream_words(const struct clair_stream *stream);
/* "torch-distributed", …; "auto" when unknown. */
const char *clair_stream_sampler(const struct clair_stream *stream);
/* Never "auto" when there is a catalog: what that means here. */
const char *clair_stream_index(const struct clair_stream *stream);
/* Local ranks (their numbers in the job), ascending. */
const uint32_t *clair_stream_ranks(const struct clair_stream *stream, size_t *count);
uint32_t clair_stream_world(const struct clair_stream *stream);
uint32_t clair_stream_batch(const struct clair_stream *stream);   /* 0: unknown */
uint32_t clair_stream_workers(const struct clair_stream *stream); /* 0: unknown */
uint64_t clair_stream_first_epoch(const struct clair_stream *stream);
/* One past the last epoch, UINT64_MAX: unlimited. */
uint64_t clair_stream_end_epoch(const struct clair_stream *stream);
/* Samples in dataset order (after the split): files by sample number. */
const uint32_t *clair_stream_samples(const struct clair_stream *stream, uint32_t *count);
/* The catalog ids that RANK (its number in the job) reads in EPOCH, in order. The array
 * is shared, counted, immutable; cached for the last few (epoch, rank). -ENOENT: the
 * order is unknown. */
struct clair_epoch {
	_Atomic unsigned references;
	uint64_t epoch;
	uint32_t rank;
	uint32_t count;
	uint32_t ids[];
};
int clair_stream_epoch(struct clair_stream *stream, uint64_t epoch, uint32_t rank,
		       struct clair_epoch **out);
/* The same as indices into the dataset order before the split: replaces OUT's contents.
 * Not cached. */
int clair_stream_indices(struct clair_stream *stream, uint64_t epoch, uint32_t rank,
			 struct clair_indices *out);
/* The same as catalog ids: for whoever goes over all ranks of an epoch, rank by rank. */
int clair_stream_ids(struct clair_stream *stream, uint64_t epoch, uint32_t rank,
		     struct clair_indices *out);
struct clair_epoch *clair_epoch_get(struct clair_epoch *epoch);
void clair_epoch_put(struct clair_epoch *epoch); /* takes NULL */

#endif
