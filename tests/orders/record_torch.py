#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""record_torch.py CLAIRFS OUT: records what real loaders open through a real mount.

Torch's DataLoader with 0, 1 and 4 workers over its samplers, and what is built on it where it is
installed (accelerate, lightning, timm, torchdata, webdataset). The mount's own trace
(`clairfs trace`) says who opened what. OUT is for tests/vectors/traces. Needs a mount's
permissions and torch.
"""
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings

import torch
from torch.utils.data import (DataLoader, Dataset, DistributedSampler, RandomSampler,
                              SubsetRandomSampler, WeightedRandomSampler)

warnings.filterwarnings("ignore")
N, BATCH, EPOCHS = 103, 8, 2
CASES = []


class Files(Dataset):
    def __init__(self, top):
        self.names = [os.path.join(top, "data/%03d.bin" % i) for i in range(N)]

    def __len__(self):
        return N

    def __getitem__(self, i):
        time.sleep(0.002)  # a trace that cannot keep up loses lines
        with open(self.names[i], "rb") as f:
            return len(f.read())


def case(name, sampler, words=None, workers=(0, 1, 4), package="torch", **more):
    def keep(make):
        for w in workers:
            CASES.append(dict(name=name, sampler=sampler, words=words or {}, workers=w,
                              package=package, make=make, more=more))
        return make
    return keep


def loader(data, workers, **words):
    return DataLoader(data, batch_size=BATCH, num_workers=workers, **words)


@case("distributed", "torch-distributed", dict(seed=0))
def distributed(data, workers):
    sampler = DistributedSampler(data, num_replicas=1, rank=0)
    x = loader(data, workers, sampler=sampler)
    for e in range(EPOCHS):
        sampler.set_epoch(e)
        yield x


@case("generator", "torch-random", dict(seed=7))
def generator(data, workers):
    g = torch.Generator().manual_seed(7)
    x = loader(data, workers, sampler=RandomSampler(data, generator=g), generator=g)
    for e in range(EPOCHS):
        yield x


@case("generator-persistent", "torch-random", dict(seed=7, persistent=1), workers=(1, 4))
def persistent(data, workers):
    g = torch.Generator().manual_seed(7)
    x = loader(data, workers, sampler=RandomSampler(data, generator=g), generator=g,
               persistent_workers=True)
    for e in range(EPOCHS):
        yield x


@case("default", "torch-default", dict(seed=1234))
def default(data, workers):
    torch.manual_seed(1234)
    x = loader(data, workers, shuffle=True)
    for e in range(EPOCHS):
        yield x


@case("drop-last", "torch-default", dict(seed=5), prefix=1)
def drop_last(data, workers):
    torch.manual_seed(5)
    x = loader(data, workers, shuffle=True, drop_last=True)
    for e in range(EPOCHS):
        yield x


@case("subset", "torch-subset", dict(seed=3))
def subset(data, workers):
    torch.manual_seed(3)
    x = loader(data, workers, sampler=SubsetRandomSampler(range(N)))
    for e in range(EPOCHS):
        yield x


@case("weighted", "torch-weighted", dict(seed=9), weights=[1.0 + i % 7 for i in range(N)],
      batch_workers=1)
def weighted(data, workers):
    torch.manual_seed(9)
    x = loader(data, workers, sampler=WeightedRandomSampler([1.0 + i % 7 for i in range(N)], N))
    for e in range(EPOCHS):
        yield x


@case("stateful", "torch-stateful", dict(seed=4), package="torchdata")
def stateful(data, workers):
    from torchdata.stateful_dataloader import StatefulDataLoader
    torch.manual_seed(4)
    x = StatefulDataLoader(data, batch_size=BATCH, shuffle=True, num_workers=workers)
    for e in range(EPOCHS):
        yield x


@case("accelerate", "accelerate", dict(seed=11), package="accelerate")
def accelerate(data, workers):
    from accelerate import Accelerator
    torch.manual_seed(11)
    x = Accelerator(cpu=True).prepare(loader(data, workers, shuffle=True))
    for e in range(EPOCHS):
        x.set_epoch(e)
        yield x


@case("accelerate-seedable", "accelerate", dict(seed=11, seedable=1), package="accelerate")
def accelerate_seedable(data, workers):
    from accelerate import Accelerator, DataLoaderConfiguration
    torch.manual_seed(11)
    x = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(
        use_seedable_sampler=True)).prepare(loader(data, workers, shuffle=True))
    for e in range(EPOCHS):
        x.set_epoch(e)
        yield x


@case("lightning-fabric", "lightning", dict(seed=12, fabric=1), package="lightning")
def fabric(data, workers):
    from lightning.fabric import Fabric
    torch.manual_seed(12)
    f = Fabric(accelerator="cpu", devices=1)
    x = f.setup_dataloaders(loader(data, workers, shuffle=True))
    for e in range(EPOCHS):
        yield x


def mark(top, what):
    with open(os.path.join(top, "marks", what), "rb") as f:
        f.read()


def read_all(top):
    data = Files(top)
    done = []
    for c in CASES:
        try:
            for x in c["make"](data, c["workers"]):
                mark(top, "epoch")
                for _ in x:
                    pass
            mark(top, "end")
            done.append(c)
        except ImportError as e:
            mark(top, "left-out")
            print("%s is left out: %s" % (c["name"], e))
    return done


def cut(lines):
    """Cases as lists of epochs as lists of (pid, file)."""
    cases, epochs = [], []
    for line in lines:
        pid, _, path = line.partition(" ")
        if path == "marks/epoch":
            epochs.append([])
        elif path in ("marks/end", "marks/left-out"):
            if path == "marks/end":
                cases.append(epochs)
            epochs = []
        elif path.startswith("data/"):
            epochs[-1].append((int(pid), path))
    return cases


def version(package):
    import importlib.metadata
    return importlib.metadata.version(package)


def pack(c, epochs):
    out = []
    for opens in epochs:
        pids = sorted({pid for pid, _ in opens})
        out.append(dict(by=[pids.index(pid) for pid, _ in opens],
                        order=[int(path[5:8]) for _, path in opens]))
    words = dict(c["words"])
    item = dict(name=c["name"], package="%s %s" % (c["package"], version(c["package"])),
                sampler=c["sampler"], n=N, words=words, workers=c["workers"], batch=BATCH,
                epochs=out)
    if "weights" in c["more"]:
        item["files"] = dict(weights=c["more"]["weights"])
    return item


def main():
    clairfs, out = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as d:
        source, top = os.path.join(d, "source"), os.path.join(d, "mount")
        os.makedirs(os.path.join(source, "data"))
        os.makedirs(os.path.join(source, "marks"))
        os.mkdir(top)
        for i in range(N):
            with open(os.path.join(source, "data/%03d.bin" % i), "wb") as f:
                f.write(bytes(100 + i))
        for name in ("epoch", "end", "left-out"):
            with open(os.path.join(source, "marks", name), "wb") as f:
                f.write(b"x")
        os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = d
        # A rank that nobody is: the order stays unknown, so all opens bring their process id.
        subprocess.run([clairfs, "mount", source, top, "-o", "world=4096,ranks=4095"], check=True,
                       timeout=60)
        try:
            # Into a file: a watcher that is too slow loses lines.
            log = open(os.path.join(d, "trace"), "w+")
            trace = subprocess.Popen([clairfs, "trace", top], stdout=log)
            time.sleep(1)
            os.nice(15)  # the trace comes first
            done = read_all(top)
            time.sleep(1)
        finally:
            subprocess.run([clairfs, "umount", top], timeout=60, check=True)
        try:
            trace.wait(timeout=20)
        except subprocess.TimeoutExpired:
            trace.terminate()
        log.seek(0)
        lines = log.read().splitlines()
    cases = cut(lines)
    assert len(cases) == len(done), (len(cases), len(done))
    for c, epochs in zip(done, cases):
        want = N // BATCH * BATCH if c["name"] == "drop-last" else N
        assert all(len(e) == want for e in epochs), "%s: lines were lost, try again" % c["name"]
    with open(out, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(pack(c, e), separators=(",", ":"))
                                   for c, e in zip(done, cases)) + "\n]\n")
    print("%d cases, %d opens" % (len(cases), sum(len(e) for c in cases for e in c)))


if __name__ == "__main__":
    main()
