# SPDX-License-Identifier: BSD-3-Clause
"""Recipes whose list a mount can make itself: classes A and A+."""
import random

from loaders import *


def imagenet(number, name, world, ranks, workers, batch, n=2400, **words):
    files = class_tree(n, 12, seed=number)
    val = class_tree(240, 12, "val/", seed=number)
    return ddp(number, "A", name, files + val, list(range(len(files))), world, ranks, workers,
               batch, **words)


@recipe(1)
def r1():
    return imagenet(1, "pytorch-imagenet", 4, range(4), 2, 64)


@recipe(2)
def r2():
    return imagenet(2, "torchvision-classification", 8, range(8), 4, 32)


@recipe(5)
def r5():
    files = class_tree(2400, 12, seed=5)
    import re
    key = lambda s: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", s.lower())]
    files.sort(key=key)
    return ddp(5, "A", "timm", files, list(range(len(files))), 2, range(2), 4, 64)


@recipe(6)
def r6():
    import math
    import torch

    class RASampler(torch.utils.data.Sampler):
        def __init__(self, n, world, rank):
            self.n, self.world, self.rank, self.epoch = n, world, rank, 0
            self.each = math.ceil(n * 3 / world)
            self.kept = n // 256 * 256 // world

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __len__(self):
            return self.kept

        def __iter__(self):
            g = torch.Generator()
            g.manual_seed(self.epoch)
            all_of = [i for i in torch.randperm(self.n, generator=g).tolist() for _ in range(3)]
            all_of += all_of[:self.each * self.world - len(all_of)]
            return iter(all_of[self.rank::self.world][:self.kept])

    files = class_tree(2600, 10, seed=6)
    t = Trace(6, "A", "deit-repeated-augmentation", files, world=4)
    return torch_loader(t, len(files), lambda d, r: dict(sampler=RASampler(len(d), 4, r)), 2, 64,
                        ranks=range(4))


@recipe(7)
def r7():
    return imagenet(7, "swin", 8, range(8), 2, 64)


@recipe(8)
def r8():
    return imagenet(8, "convnext", 8, range(4), 2, 64, n=4200, drop_last=True)


@recipe(9)
def r9():
    return imagenet(9, "mae", 8, range(8), 2, 64, drop_last=True)


@recipe(10)
def r10():
    return imagenet(10, "dino", 2, range(2), 4, 64, drop_last=True)


@recipe(11)
def r11():
    files = class_tree(2400, 12, seed=11)
    t = Trace(11, "A+", "dinov2", files, world=4, stay=True)
    return ours(t, len(files), "dinov2", 2, 32, ranks=range(4), seed=0)


@recipe(12)
def r12():
    return imagenet(12, "moco", 8, range(8), 4, 32, drop_last=True)


@recipe(13)
def r13():
    return imagenet(13, "simsiam", 4, range(4), 4, 64, drop_last=True)


@recipe(14)
def r14():
    files = ["laion/%05d.tar" % k for k in range(2400)]
    t = Trace(14, "A+", "open-clip", files, world=2)
    return ours(t, len(files), "open-clip-wds", 4, 1, ranks=range(2), workers=4)


@recipe(15)
def r15():
    files = ["coco/images/train2017/%012d.jpg" % (k * 37 + 9) for k in range(2000)]
    t = Trace(15, "A+", "yolov5", files, stay=True)
    # An item opens four pictures: batches of the order are four times as large.
    return ours(t, len(files), "yolov5", 4, 4 * 16, workers=4, batch=16)


@recipe(16)
def r16():
    """Opens are the sampler's order without what the FIFO of decoded pictures still has."""
    files = ["coco/images/train2017/%012d.jpg" % (k * 37 + 9) for k in range(2200)]
    t = Trace(16, "A", "ultralytics", files, stay=True)
    kept = min(len(files), 8 * 16, 1000) // 4  # of each worker
    buffers = [[] for _ in range(4)]
    for e in range(EPOCHS):
        o, queue = order(len(files), "ultralytics", e), []
        for k, i in enumerate(o):
            buffer = buffers[k // 16 % 4]
            if i in buffer:
                queue.append(())
                continue
            buffer.append(i)
            if len(buffer) > kept:
                buffer.pop(0)
            queue.append((i,))
        t.epochs.append(deal(list(range(len(o))), 4, 16, lambda k: queue[k], e))
    return t


def pairs(n, picture, mask):
    return [p % k for k in range(n) for p in (picture, mask)]


def both(i):
    return (2 * i, 2 * i + 1)


@recipe(19)
def r19():
    files = pairs(1200, "ade/images/training/ADE_train_%08d.jpg",
                  "ade/annotations/training/ADE_train_%08d.png")
    t = Trace(19, "A", "mmsegmentation", files, hidden=True, stay=True)
    return ours(t, 1200, "mmengine-infinite", 4, 4, both, seed=1823746551)


@recipe(27)
def r27():
    return imagenet(27, "lightning", 2, range(2), 2, 32)


@recipe(28)
def r28():
    files = class_tree(2600, 2, "PetImages/", ".jpg", 28, wnid=False)
    t = Trace(28, "A", "keras-image-classification", files)
    for e in range(EPOCHS):
        o = order(len(files), "keras-directory", e, seed=1337, batch=128, validation_split=0.2,
                  subset="training")
        t.epochs.append([(0, 0, i) for i in jitter(o, 8, e)])
    return t


@recipe(33)
def r33():
    files = class_tree(2400, 12, seed=33)
    t = Trace(33, "A", "dali-resnet50", files, world=4, stay=True)
    return ours(t, len(files), "dali-file", 0, 64, ranks=range(4), random_shuffle=1)


@recipe(39)
def r39():
    files = sorted(class_tree(2600, 10, "beans/", ".jpg", 39, wnid=False))
    t = Trace(39, "A+", "hf-image-classification", files)
    import numpy
    n = len(files)
    p = numpy.random.default_rng(42).permutation(n)
    train = p[-(-15 * n // 100):].tolist()
    return ours(t, len(train), "hf-trainer", 0, 8, split=train, seed=42)


@recipe(49)
def r49():
    files = ["cosmo/train/univ_ics_2019-03_a%08d.tfrecord" % (k * 131 % 99999999) for k in
             range(2048)]
    files.sort()
    t = Trace(49, "A", "cosmoflow", files, world=4, stay=True)
    for e in range(EPOCHS):
        t.epochs.append(merge([[(r, 0, i) for i in jitter(order(
            2048, "tf-shuffle", e, r, seed=0, world=4), 3, 10 * e + r)] for r in range(4)], e))
    return t


@recipe(50)
def r50():
    files = ["deepcam/train/data-%04d-%02d-%02d-%02d-%d.h5" % (1996 + k // 400, k // 40 % 10 + 1,
             k // 2 % 20 + 1, k % 2 * 12, k % 3) for k in range(2400)]
    files = sorted(set(files))
    t = Trace(50, "A+", "deepcam", files, world=4)
    return ours(t, len(files), "deepcam", 2, 2, ranks=range(4))


@recipe(51)
def r51():
    files = ["kits19/case_%05d_%s.npy" % (k, x) for k in range(1100) for x in "xy"]
    t = Trace(51, "A+", "unet3d", files, world=8)
    return ours(t, 1100, "unet3d", 2, 2, both, ranks=range(8), seed=3)


@recipe(55)
def r55():
    """A chunk of zarr a date; a sample has three dates."""
    files = ["era5.zarr/data/%d.0.0.0" % k for k in range(2200)]
    t = Trace(55, "A+", "anemoi", files)
    return ours(t, 2198, "anemoi", 4, 2, lambda i: (i, i + 1, i + 2), workers=4)
