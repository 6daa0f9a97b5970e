/* SPDX-License-Identifier: BSD-3-Clause */
#include "torch_perm.h"

/* From this size on (0xFFFFFFFF / 20) torch >= 2.6 shuffles with 64-bit draws. */
#define BIG 214748364u

uint64_t clair_torch_randperm_draws(uint32_t n)
{
	if (n >= BIG)
		return 2 * (uint64_t)n;
	return n ? n - 1 : 0;
}

static void shuffle_big(struct clair_mt *mt, uint32_t n, uint32_t *out)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t z = (uint32_t)(clair_mt_u64(mt) % ((uint64_t)i + 1));
		out[i] = out[z];
		out[z] = i;
	}
}

void clair_torch_randperm(struct clair_mt *mt, uint32_t n, uint32_t *out)
{
	for (uint32_t i = 0; i < n; i++)
		out[i] = i;
	if (n >= BIG) {
		shuffle_big(mt, n, out);
		return;
	}
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t z = i + clair_mt_u32(mt) % (n - i);
		uint32_t t = out[i];
		out[i] = out[z];
		out[z] = t;
	}
}
