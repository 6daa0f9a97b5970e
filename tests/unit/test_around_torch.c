/* SPDX-License-Identifier: BSD-3-Clause */
/* Loaders around torch against orders that they gave. */
#include <criterion/criterion.h>

#include "order_vectors.h"

Test(around_torch, accelerate)
{
	vectors_orders("order_accelerate");
}

Test(around_torch, samplers)
{
	vectors_orders("order_around_torch");
}

Test(around_torch, infinite)
{
	vectors_orders("order_infinite");
}

Test(around_torch, yolov5)
{
	vectors_orders("order_yolov5");
}

Test(around_torch, grouped)
{
	vectors_orders("order_grouped");
}
