# SPDX-License-Identifier: BSD-3-Clause
"""Traces, the loaders that they are recorded from, and trees of files."""
import lzma
import os
import random
import subprocess
import tempfile
import time

EPOCHS = 3
CLAIRFS = ["clairfs"]


class Trace:
    """One recipe: files of the data set by number, what the readers open."""

    def __init__(self, number, kind, name, files, texts=(), world=1, hidden=False, walk="",
                 stay=False):
        self.number, self.kind, self.name = number, kind, name
        self.files, self.texts, self.world = files, dict(texts), world
        self.hidden, self.walk, self.stay = hidden, walk, stay
        self.epochs = []  # of (rank, worker, file)

    def write(self, folder):
        out = ["recipe %d %s %s" % (self.number, self.kind, self.name)]
        if self.world > 1:
            out.append("world %d" % self.world)
        if self.hidden:
            out.append("hidden")
        if self.walk:
            out.append("index " + self.walk)
        if self.stay:
            out.append("stay")
        out += ["f " + path for path in self.files]
        for path, text in self.texts.items():
            out.append("t %s" % path)
            out += ["| " + line for line in text.splitlines()]
        readers = sorted({(r, w) for e in self.epochs for r, w, _ in e})
        out += ["r %d" % rank for rank, _ in readers]
        number = {key: i for i, key in enumerate(readers)}
        for epoch in self.epochs:
            out.append("e")
            out += ["%d %d" % (number[r, w], f) if len(readers) > 1 else "0 %d" % f
                    for r, w, f in epoch]
        path = os.path.join(folder, "%02d-%s.xz" % (self.number, self.name))
        with open(path, "wb") as f:
            f.write(lzma.compress(("\n".join(out) + "\n").encode(), preset=9 | lzma.PRESET_EXTREME))
        opens = sum(map(len, self.epochs))
        print("%02d %-28s %6d files %6d opens %6d bytes" % (self.number, self.name,
              len(self.files), opens, os.path.getsize(path)), flush=True)


def merge(streams, seed):
    """Streams of (rank, worker, file) as they come when all run at about the same speed."""
    rng, at, out = random.Random(seed), [0] * len(streams), []
    left = [i for i, s in enumerate(streams) if s]
    while left:
        i = rng.choice(left)
        out.append(streams[i][at[i]])
        at[i] += 1
        if at[i] == len(streams[i]):
            left.remove(i)
    return out


def deal(order, workers, batch, opens, seed, rank=0, prefetch=2):
    """Batch b goes to worker b mod W; no worker is more than its prefetch ahead of the main loop."""
    if not workers:
        return [(rank, 0, f) for i in order for f in opens(i)]
    rng = random.Random(seed)
    batches = [order[k:k + batch] for k in range(0, len(order), batch)]
    queue = [[(b, f) for b in range(w, len(batches), workers) for i in batches[b] for f in opens(i)]
             for w in range(workers)]
    last = [max((k for k, x in enumerate(queue[b % workers]) if x[0] == b), default=-1)
            for b in range(len(batches))]
    at, received, out = [0] * workers, 0, []
    while len(out) < sum(map(len, queue)):
        w = rng.randrange(workers)
        if at[w] >= len(queue[w]) or queue[w][at[w]][0] >= received + prefetch * workers:
            continue
        out.append((rank, w, queue[w][at[w]][1]))
        at[w] += 1
        while received < len(batches) and at[received % workers] > last[received]:
            received += 1
    return out


def jitter(order, window, seed):
    """Parallel calls of one process: displacements below WINDOW."""
    rng = random.Random(seed)
    return [x for _, x in sorted((k + rng.random() * window, x) for k, x in enumerate(order))]


def order(n, sampler, epoch, rank=0, **words):
    """What `clairfs order` says: indices."""
    with tempfile.TemporaryDirectory() as d:
        options = ["sampler=" + sampler]
        for key, value in words.items():
            if isinstance(value, list):
                with open(os.path.join(d, key), "w") as f:
                    f.writelines("%s\n" % v for v in value)
                value = os.path.join(d, key)
            options.append("%s=%s" % (key, value))
        out = subprocess.run([CLAIRFS[0], "order", "--n", str(n), "--epoch", str(epoch), "--rank",
                              str(rank), "-o", ",".join(options)], check=True,
                             stdout=subprocess.PIPE).stdout
    return [int(line) for line in out.split()]


def one(i):
    return (i,)


def ours(t, n, sampler, workers, batch, /, opens=one, ranks=(0,), split=None, **words):
    """A loader of ours over the order of a family."""
    if t.world > 1:
        words["world"] = t.world
    for e in range(EPOCHS):
        streams = []
        for rank in ranks:
            o = order(n, sampler, e, rank, **words)
            streams.append(deal([split[i] for i in o] if split else o, workers, batch, opens,
                                1000 * e + rank, rank))
        t.epochs.append(merge(streams, e))
    return t


# --- torch ------------------------------------------------------------------------------------

def torch_rank(name, rank, make, opens, n, workers, batch, words, gate, seed):
    import torch
    from torch.utils.data import DataLoader, Dataset, get_worker_info

    class Files(Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            info = get_worker_info()
            for f in opens(int(i)):
                time.sleep(random.random() * 4e-4)
                os.write(fd, b"%d %d %d\n" % (rank, info.id if info else 0, f))
            return 0

    fd = os.open(name, os.O_WRONLY | os.O_APPEND)
    if seed is not None:
        torch.manual_seed(seed)
    data = Files()
    what = make(data, rank)
    loader = DataLoader(data, num_workers=workers, **(dict(words, batch_size=batch, **what)
                        if "batch_sampler" not in what else what))
    for e in range(EPOCHS):
        for s in (loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
            if hasattr(s, "set_epoch"):
                s.set_epoch(e)
        for _ in loader:
            pass
        gate.wait()
        if rank == FIRST[0]:
            os.write(fd, b"e\n")
        gate.wait()


FIRST = [0]


def torch_loader(t, n, make, workers, batch, opens=one, ranks=(0,), seed=None, **words):
    """torch's DataLoader itself, a process a rank. MAKE(data, rank) gives its sampler's words."""
    import multiprocessing
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(len(ranks))
    FIRST[0] = ranks[0]
    with tempfile.NamedTemporaryFile() as f:
        jobs = [context.Process(target=torch_rank, args=(f.name, r, make, opens, n, workers, batch,
                                                         words, gate, seed)) for r in ranks]
        for j in jobs:
            j.start()
        for j in jobs:
            j.join()
            assert j.exitcode == 0, t.name
        now = []
        for line in f.read().split(b"\n"):
            if line == b"e":
                t.epochs.append(now)
                now = []
            elif line:
                now.append(tuple(map(int, line.split())))
    assert len(t.epochs) == EPOCHS
    return t


def distributed(world, seed=0, drop_last=False):
    from torch.utils.data import DistributedSampler
    return lambda data, rank: dict(sampler=DistributedSampler(
        data, num_replicas=world, rank=rank, seed=seed, drop_last=drop_last))


def ddp(number, kind, name, files, samples, world, ranks, workers, batch, opens=None, seed=0,
        texts=(), **words):
    """DistributedSampler with set_epoch over SAMPLES (numbers of files)."""
    t = Trace(number, kind, name, files, texts, world)
    opens = opens or (lambda i: (samples[i],))
    return torch_loader(t, len(samples), distributed(world, seed), workers, batch, opens, ranks,
                        **words)


# --- trees ------------------------------------------------------------------------------------

def class_tree(n, classes, top="train/", ending=".JPEG", seed=1, wnid=True):
    """Classes of unequal size, in the order of ImageFolder."""
    rng = random.Random(seed)
    names = sorted(("n%08d" % rng.randrange(10 ** 8)) if wnid else "class%02d" % c
                   for c in range(classes))
    files = []
    for c, name in enumerate(names):
        count = n // classes + (c % 3 - 1) * 7
        files += sorted("%s%s/%s_%d%s" % (top, name, name, k, ending)
                        for k in rng.sample(range(1, 9000), count))
    return files


def coco(n, seed, top="coco/"):
    """Pictures in the order of the JSON, which is not that of the ids; some have no boxes."""
    import json
    rng = random.Random(seed)
    ids = rng.sample(range(1, 580000), n)
    files = [top + "train2017/%012d.jpg" % i for i in ids]
    images = [dict(id=i, file_name="%012d.jpg" % i, width=rng.choice([640, 480, 500]),
                   height=rng.choice([480, 640, 427])) for i in ids]
    boxed = [k for k in range(n) if rng.random() > 0.01]
    notes = [dict(id=j + 1, image_id=ids[k], category_id=rng.randrange(1, 80),
                  bbox=[10, 10, 40, 50], area=2000, iscrowd=0) for j, k in enumerate(boxed)]
    text = json.dumps(dict(images=images, annotations=notes, categories=[]))
    by_id = sorted(boxed, key=lambda k: ids[k])
    wide = [images[k]["width"] >= images[k]["height"] for k in range(n)]
    return files, {top + "annotations/instances_train2017.json": text}, boxed, by_id, wide


RECIPES = {}


def recipe(number):
    def keep(f):
        RECIPES[number] = f
        return f
    return keep
