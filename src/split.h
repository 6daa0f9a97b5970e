/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLAIR_SPLIT_H
#define CLAIR_SPLIT_H

#include <stdint.h>

/* `split=METHOD:SEED:FRACTIONS:PART`: which samples of the dataset order a stream has,
 * and how it numbers them. POSITIONS (heap, the caller frees): by number in the part, the
 * number in the whole. 0, -ENOMEM, or -EINVAL with *error.
 *
 *   torch:42:0.8/0.2:0      random_split, fractions or lengths; the part's number
 *   sklearn:0:0.2:train     train_test_split(test_size[/train_size]); train, test
 *   hf:42:0.1:train         datasets' train_test_split; train, test
 *   fastai:42:0.2:train     RandomSplitter(valid_pct); train, valid
 *   keras:1337:0.2:train    *_dataset_from_directory(validation_split); train, validation.
 *                           The part is in the shuffled order that it then has.
 *   pandas:0:0.8:sample     df.sample(frac or n); sample, or the rest in order
 *   kfold:0:5:test0         sklearn's KFold(5, shuffle=True); trainF, testF, ascending */
int clair_split_new(const char *spec, uint32_t n, uint32_t **positions, uint32_t *count,
		    char **error);

#endif
