/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of families: one line each, FAMILY(identifier) for
 * `const struct clair_family clair_family_identifier`. Included by sampler.c only. */
FAMILY(torch_distributed)
FAMILY(torch_random)
FAMILY(torch_default)
FAMILY(sequential)
