/* SPDX-License-Identifier: BSD-3-Clause */
/* The families outside torch against recorded orders, one test a file of vectors. */
#include <criterion/criterion.h>

#include "order_vectors.h"

#define VECTORS(name)                    \
	Test(orders, name)               \
	{                                \
		vectors_orders(#name);   \
	}

VECTORS(order_shuffle)
VECTORS(order_tf)
VECTORS(order_dali)
VECTORS(order_nopfs)
VECTORS(order_mosaic)
VECTORS(order_keras)
VECTORS(order_grain)
VECTORS(order_webdataset)
VECTORS(order_fastai)
VECTORS(order_science)
VECTORS(order_hf_stream)
VECTORS(order_litdata)
VECTORS(order_pages)
VECTORS(order_mmdet)
