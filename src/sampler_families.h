/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of families: one line each, FAMILY(identifier) for
 * `const struct clair_family clair_family_identifier`. Included by sampler.c only. */
FAMILY(torch_distributed)
FAMILY(torch_random)
FAMILY(torch_default)
FAMILY(sequential)
FAMILY(mosaic)
FAMILY(nopfs)
FAMILY(dali_file)
FAMILY(tf_shuffle)
FAMILY(ffcv)
FAMILY(horovod)
FAMILY(python_sample)
FAMILY(python2_shuffle)
FAMILY(python_shuffle)
FAMILY(numpy_generator)
FAMILY(numpy_randomstate)
