/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_ORDER_LIST_H
#define CLAIR_ORDER_LIST_H

#include "sampler.h"

/* sampler=list:FILE: an order that somebody else computed. One index or path a line; an
 * empty line ends an epoch; epochs beyond the last one repeat the last. Several ranks share
 * a list: rank r reads lines r, r + world, … of each epoch. */
extern const struct clair_family clair_family_list;

int clair_order_list_open(const char *file, const struct clair_order_params *params,
			  int (*path_index)(void *arg, const char *path, uint32_t *index),
			  void *arg, void **state, char **error);

#endif
