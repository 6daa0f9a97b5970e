#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""odd_tree.py DIR: a folder with every kind of file and name that a data set may have."""
import os
import random
import sys

top = os.fsencode(sys.argv[1])
rng = random.Random(7)


def put(name, data):
    path = os.path.join(top, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    return path


def sparse(name, size, at):
    with open(put(name, b""), "wb") as f:
        for offset in at:
            f.seek(offset)
            f.write(b"marker %d" % offset)
        f.truncate(size)


for k, size in enumerate((1, 2, 4095, 4096, 4097, 65536, 131071, 131073, 300000)):
    put(b"sizes/f%d" % k, rng.randbytes(size))
put(b"empty/nothing", b"")
for name in ("grün/äöü.png".encode(), "日本/写真.jpg".encode(), b"latin/\xe4\xf6\xff.png",
             b"odd/ with space ", b"odd/new\nline", b"odd/quote'\"\\", b"odd/-dash",
             b"odd/tab\there", b"odd/*?[a]", b"odd/.hidden", b"odd/%s%n", b"odd/" + b"n" * 255,
             b"deep/" + b"/".join([b"d"] * 60) + b"/f", b"odd/a,b=c:d"):
    put(name, rng.randbytes(5000))
os.symlink(b"../sizes/f3", os.path.join(top, b"odd/link"))
os.symlink(b"nowhere", os.path.join(top, b"odd/dangling"))
os.symlink(b"sizes", os.path.join(top, b"linked"))
os.symlink(b"/etc/hostname", os.path.join(top, b"odd/outside"))
os.symlink(b"loop", os.path.join(top, b"odd/loop"))
os.link(os.path.join(top, b"sizes/f8"), os.path.join(top, b"odd/hard"))
os.link(os.path.join(top, b"sizes/f8"), os.path.join(top, b"sizes/hard"))
sparse(b"sparse/small", 10 << 20, (0, 5 << 20))
sparse(b"sparse/huge", (5 << 30) + 123, (0, (1 << 32) - 3, (1 << 32) + 4096, 5 << 30))
for k in range(5000):
    put(b"many/%05d" % k, b"%d" % k if k % 7 else b"")
os.mkfifo(os.path.join(top, b"odd/pipe"))
os.makedirs(os.path.join(top, b"closed"), 0o755)
put(b"closed/secret", b"secret")
put(b"odd/mode000", b"secret")
os.chmod(os.path.join(top, b"closed"), 0)
os.chmod(os.path.join(top, b"odd/mode000"), 0)
os.makedirs(os.path.join(top, b"emptydir"))
