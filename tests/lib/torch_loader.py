#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""torch_loader.py ROOT LIST SAMPLER [KEY=VALUE...]: a torch DataLoader as people write it.

A Dataset over the paths in LIST (relative to ROOT; several on a line make one sample) opens and
reads every file. SAMPLER: distributed, random (a generator of its own), default (shuffle=True),
shuffle (Python's random), drawn (random.sample for each batch), numpy. WORLD, RANK: of the
DistributedSampler; BEGIN: a file that is waited for, BEGIN.RANK is made before. US: what it works at
a sample, microseconds; VAL: so many of the list's end are a validation after each epoch. Prints a
line with a sum over the bytes an epoch.
"""
import os
import random
import sys
import time
import zlib

import numpy
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler


class Files(Dataset):
    def __init__(self, root, lines, opens, us):
        self.root, self.lines, self.opens, self.us = root, lines, opens, us

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        total = 0
        for path in self.lines[i].split():
            for _ in range(self.opens):  # as cv2, nibabel, numpy.load(mmap_mode=...) do
                with open(self.root + "/" + path, "rb") as f:
                    data = f.read()
            total += zlib.crc32(data)
        time.sleep(self.us / 1e6)
        return total


class Drawn:
    """Each batch drawn from all files, whatever was drawn before."""

    def __init__(self, n, batch, batches):
        self.n, self.batch, self.batches = n, batch, batches

    def __iter__(self):
        for _ in range(self.batches):
            yield random.sample(range(self.n), self.batch)

    def __len__(self):
        return self.batches


class Shuffled:
    """A list that is shuffled again each epoch, by Python or NumPy."""

    def __init__(self, n, shuffle):
        self.order, self.shuffle = list(range(n)), shuffle

    def __iter__(self):
        self.shuffle(self.order)
        return iter(list(self.order))

    def __len__(self):
        return len(self.order)


def main():
    root, name, kind = sys.argv[1:4]
    o = dict(epochs=2, workers=2, batch=16, seed=0, limit=0, opens=1, drop_last=0, persistent=0,
             us=0, val=0, world=1, rank=0)
    begin = [a[6:] for a in sys.argv[4:] if a.startswith("begin=")]
    o.update((k, int(v)) for k, v in (a.split("=") for a in sys.argv[4:] if not a.startswith("begin=")))
    with open(name) as f:
        lines = f.read().splitlines()
    val, lines = lines[len(lines) - o["val"]:], lines[:len(lines) - o["val"]]
    files, n = Files(root, lines, o["opens"], o["us"]), len(lines)
    random.seed(o["seed"])
    numpy.random.seed(o["seed"])
    torch.manual_seed(o["seed"])
    words = dict(batch_size=o["batch"], drop_last=bool(o["drop_last"]))
    sampler = None
    if kind == "distributed":
        sampler = DistributedSampler(files, num_replicas=o["world"], rank=o["rank"],
                                     seed=o["seed"])
    elif kind == "random":
        sampler = RandomSampler(files, generator=torch.Generator().manual_seed(o["seed"]))
    elif kind == "shuffle":
        sampler = Shuffled(n, random.shuffle)
    elif kind == "numpy":
        sampler = Shuffled(n, numpy.random.shuffle)
    elif kind == "default":
        words["shuffle"] = True
    elif kind == "drawn":
        words = dict(batch_sampler=Drawn(n, o["batch"], n // o["batch"]))
    if sampler is not None:
        words["sampler"] = sampler
    loader = DataLoader(files, num_workers=o["workers"],
                        persistent_workers=bool(o["persistent"]), **words)
    validation = DataLoader(Files(root, val, 1, o["us"]), batch_size=o["batch"],
                            num_workers=o["workers"],
                            persistent_workers=bool(o["persistent"]))
    if begin:
        open("%s.%d" % (begin[0], o["rank"]), "w").close()
    while begin and not os.path.exists(begin[0]):
        time.sleep(0.02)
    for epoch in range(o["epochs"]):
        if kind == "distributed":
            sampler.set_epoch(epoch)
        total = 0
        for k, batch in enumerate(loader):
            total += int(batch.sum())
            if o["limit"] and (k + 1) * o["batch"] >= o["limit"]:
                break
        for batch in validation if o["val"] else ():
            total += int(batch.sum())
        print(epoch, total, flush=True)


main()
