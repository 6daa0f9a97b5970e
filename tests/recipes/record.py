#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""record.py CLAIRFS FOLDER [NUMBER...]: writes the recipes' traces, FOLDER/NN-NAME.xz.

What runs on torch is recorded from torch's own DataLoader and samplers (numpy and torch are needed);
the rest from a loader of ours that deals the framework's order (`clairfs order`, which its own
vectors test) to workers. A trace is text: see README in this folder.
"""
import random
import sys
import warnings

import loaders
import known_lists  # noqa: F401 each recipe makes itself known
import other_lists  # noqa: F401

warnings.filterwarnings("ignore")


def main():
    loaders.CLAIRFS[0], folder = sys.argv[1:3]
    wanted = [int(a) for a in sys.argv[3:]] or sorted(loaders.RECIPES)
    for number in wanted:
        random.seed(number)
        loaders.RECIPES[number]().write(folder)


main()
