/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ORDER_TF_H
#define CLAIR_ORDER_TF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "philox.h"

/* tf.data's shuffle, for tf-shuffle and the Keras families. */

/* The seed that the NTH (from 0) op without its own gets after set_seed(GLOBAL). */
uint32_t clair_tf_op_seed(int64_t global, uint64_t nth);
/* The pair that a dataset is made with. */
void clair_tf_pair(bool has_global, int64_t global, int64_t op, uint64_t pair[2]);
/* The pair of the ITERATOR-th iterator over it. */
void clair_tf_iterator_pair(const uint64_t pair[2], bool reshuffle, uint64_t iterator,
			    uint64_t out[2]);
/* OUT gets the N items shuffled through BUFFER (>= 1 unless n is 0) slots. 0 or -ENOMEM. */
int clair_tf_shuffle(const uint64_t pair[2], uint64_t buffer, const uint32_t *items,
		     size_t n, uint32_t *out);

#endif
