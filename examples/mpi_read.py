#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reads a folder of class folders as DistributedSampler's ranks do, one rank an MPI process."""
import argparse
import os
import time

import torch
from mpi4py import MPI


class Files(torch.utils.data.Dataset):
    def __init__(self, root):
        self.paths = [
            os.path.join(root, folder, name)
            for folder in sorted(os.listdir(root))
            if os.path.isdir(os.path.join(root, folder))
            for name in sorted(os.listdir(os.path.join(root, folder)))
        ]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with open(self.paths[i], "rb") as f:
            return len(f.read())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    data = Files(args.root)
    sampler = torch.utils.data.DistributedSampler(
        data, comm.Get_size(), comm.Get_rank(), seed=args.seed
    )
    loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        begin = time.monotonic()
        read = comm.allreduce(sum(int(sizes.sum()) for sizes in loader))
        if comm.Get_rank() == 0:
            seconds = time.monotonic() - begin
            print(f"epoch {epoch}: {read} bytes by {comm.Get_size()} ranks in {seconds:.2f} s", flush=True)


main()
