/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_TORCH_PERM_H
#define CLAIR_TORCH_PERM_H

#include <stdint.h>

#include "mt19937.h"

/* torch.randperm(n, generator) on the CPU: a Fisher-Yates walk upwards, n - 1 draws
 * (n < 214,748,364; above, versions from 2.6 on draw 64-bit words: that is taken here).
 * OUT has room for n. */
void clair_torch_randperm(struct clair_mt *mt, uint32_t n, uint32_t *out);
/* u32 draws that one randperm(n) takes. */
uint64_t clair_torch_randperm_draws(uint32_t n);
/* A torch generator uses only the low 32 bits of its seed. */
static inline void clair_torch_seed(struct clair_mt *mt, uint64_t seed)
{
	clair_mt_seed(mt, (uint32_t)seed);
}

#endif
