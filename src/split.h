/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SPLIT_H
#define CLAIR_SPLIT_H

#include <stdint.h>

/* `split=METHOD:SEED:FRACTIONS:PART`: which samples of the dataset order a stream has,
 * and how it numbers them. POSITIONS (heap, the caller frees): by number in the part, the
 * number in the whole. 0, -ENOMEM, or -EINVAL with *error. */
int clair_split_new(const char *spec, uint32_t n, uint32_t **positions, uint32_t *count,
		    char **error);

#endif
