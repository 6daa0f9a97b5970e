#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""compare.py SOURCE MOUNT: listings, attributes and bytes of both, read in several ways."""
import mmap
import os
import random
import stat
import sys

source, mount = (os.fsencode(a) for a in sys.argv[1:3])
rng = random.Random(1)
bad = 0
OFFSETS = 24


def complain(what, name):
    global bad
    bad += 1
    print(f"{what}: {os.fsencode(name)!r}" if isinstance(name, str) else f"{what}: {name!r}")


def outcome(call, *args):
    try:
        return call(*args)
    except OSError as e:
        return e.errno


def same_direct(a, b, size, name):
    try:
        fd = os.open(b, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return complain("O_DIRECT refused", name)
    want = os.open(a, os.O_RDONLY)
    buf = mmap.mmap(-1, 65536)
    for offset in (0, size // 2 // 4096 * 4096, size // 4096 * 4096):
        n = os.preadv(fd, [buf], offset)
        if buf[:n] != os.pread(want, 65536, offset):
            complain(f"O_DIRECT at {offset}", name)
    os.close(fd)
    os.close(want)


def same_bytes(a, b, size, name):
    fa, fb = os.open(a, os.O_RDONLY), os.open(b, os.O_RDONLY)
    at = [0, max(0, size - 1), size, size + 1, size + 5000, max(0, size - 4097), 4095, 4097]
    at += [rng.randrange(size + 1) for _ in range(OFFSETS)]
    for offset in at:
        length = rng.choice((1, 100, 4096, 4097, 131072, 200001))
        if os.pread(fa, length, offset) != os.pread(fb, length, offset):
            complain(f"{length} bytes at {offset}", name)
    if size <= 64 << 20:
        for fd in (fa, fb):
            os.lseek(fd, 0, 0)
        while True:
            x, y = os.read(fa, 77777), os.read(fb, 77777)
            if x != y:
                complain("bytes", name)
                break
            if not x:
                break
    if size:
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            length = min(size, 1 << 20)
            offset = (size - length) // 4096 * 4096
            with mmap.mmap(fa, size - offset, flags, mmap.PROT_READ, offset=offset) as ma, \
                    mmap.mmap(fb, size - offset, flags, mmap.PROT_READ, offset=offset) as mb:
                if ma[:] != mb[:]:
                    complain("mmap", name)
    os.close(fa)
    os.close(fb)
    same_direct(a, b, size, name)


def compare(name):
    a, b = os.path.join(source, name), os.path.join(mount, name)
    sa, sb = outcome(os.lstat, a), outcome(os.lstat, b)
    if isinstance(sa, int) or isinstance(sb, int):
        if sa != sb:
            complain(f"lstat {sa} {sb}", name)
        return
    for field in ("st_mode", "st_size", "st_uid", "st_gid"):
        if stat.S_ISDIR(sa.st_mode) and field == "st_size":
            continue
        if getattr(sa, field) != getattr(sb, field):
            complain(f"{field} {getattr(sa, field)} {getattr(sb, field)}", name)
    if not stat.S_ISDIR(sa.st_mode) and int(sa.st_mtime) != int(sb.st_mtime):
        complain("st_mtime", name)
    if stat.S_ISLNK(sa.st_mode):
        if os.readlink(a) != os.readlink(b):
            complain("readlink", name)
        if os.path.exists(a) != os.path.exists(b):
            complain("dangling or not", name)
    elif stat.S_ISREG(sa.st_mode):
        if outcome(os.access, a, os.R_OK) != outcome(os.access, b, os.R_OK):
            complain("access", name)
        elif os.access(a, os.R_OK):
            same_bytes(a, b, sa.st_size, name)
    elif stat.S_ISDIR(sa.st_mode):
        la, lb = outcome(os.listdir, a), outcome(os.listdir, b)
        if isinstance(la, int) or isinstance(lb, int):
            if la != lb:
                complain(f"listdir {la} {lb}", name)
            return
        if sorted(la) != sorted(lb):
            complain(f"listing: {sorted(set(la) ^ set(lb))[:5]}", name)
        for entry in la:
            compare(os.path.join(name, entry))


compare(b"")
print(f"{bad} differences")
sys.exit(1 if bad else 0)
