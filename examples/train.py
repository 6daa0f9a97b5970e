#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads a folder of pictures as a training job does: PyTorch's DataLoader and
DistributedSampler over an ImageFolder tree (one folder a class). Prints one JSON line an epoch.
Knows nothing of where the files come from."""
import argparse
import io
import json
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

try:
    from PIL import Image
except ImportError:
    Image = None

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class Pictures(Dataset):
    """The files in the order of torchvision's ImageFolder."""

    def __init__(self, root, decode):
        self.decode = decode and Image is not None
        classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
        self.samples = []
        for label, name in enumerate(classes):
            for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                self.samples += [(os.path.join(folder, f), label) for f in sorted(files)
                                 if f.lower().endswith(EXTENSIONS)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        # As ImageFolder's loader: one open, read to the end.
        with open(path, "rb") as f:
            data = f.read()
        if self.decode:
            picture = Image.open(io.BytesIO(data)).convert("RGB").resize((32, 32))
            return len(data), sum(picture.getpixel((16, 16))), label
        return len(data), data[len(data) // 2] if data else 0, label


def main():
    p = argparse.ArgumentParser()
    p.add_argument("data")
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--seed", type=int, default=42)
    p.add_argument("--world", type=int, default=int(os.environ.get("WORLD_SIZE", 1)))
    p.add_argument("--rank", type=int, default=int(os.environ.get("RANK", 0)))
    p.add_argument("--step-ms", type=float, default=0, help="a training step takes this long")
    p.add_argument("--decode", action="store_true", help="decode the pictures, with PIL")
    p.add_argument("--log", help="write the JSON lines to this file, too")
    a = p.parse_args()

    data = Pictures(a.data, a.decode)
    sampler = DistributedSampler(data, num_replicas=a.world, rank=a.rank, shuffle=True,
                                 seed=a.seed)
    loader = DataLoader(data, batch_size=a.batch, sampler=sampler, num_workers=a.workers)
    log = open(a.log, "w") if a.log else None
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        files = size = 0
        check = 0
        begin = time.perf_counter()
        wait = 0.0
        batches = iter(loader)
        while True:
            t = time.perf_counter()
            try:
                lengths, values, labels = next(batches)
            except StopIteration:
                break
            wait += time.perf_counter() - t
            files += len(lengths)
            size += int(lengths.sum())
            check += int((values * (labels + 1)).sum())
            if a.step_ms:
                time.sleep(a.step_ms / 1e3)
        seconds = time.perf_counter() - begin
        line = json.dumps({"epoch": epoch, "files": files, "bytes": size,
                           "seconds": round(seconds, 3), "files_s": round(files / seconds, 1),
                           "mb_s": round(size / seconds / 1e6, 2), "wait_s": round(wait, 3),
                           "check": check})
        print(line, flush=True)
        if log:
            print(line, file=log, flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
