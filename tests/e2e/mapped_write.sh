#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Who writes into a shared mapping of the mount's file is refused when the kernel writes it back;
# the refused bytes do not stay in the page cache for the others.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 20 30000 2 6
mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=3,sampler=torch-distributed,ram=8M,staging=4M
mapfile -t files < <(list_of "$WORK/src" | head -n 3)
for f in "${files[@]}"; do
	cat "$WORK/mnt/$f" >/dev/null || fail "$f cannot be read"
	within 30 python3 - "$WORK/mnt/$f" <<'P' || skip "no mapping for writing"
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(fd, 0)
m[0:4] = b"XXXX"
m[9000:9004] = b"YYYY"
try:
    m.flush()
except OSError:
    pass
P
done
for f in "${files[@]}"; do
	cmp -s "$WORK/src/$f" "$WORK/mnt/$f" ||
		wait_for 30 cmp -s "$WORK/src/$f" "$WORK/mnt/$f" || fail "$f keeps what was refused"
done
(cd "$WORK/src" && find . -type f -exec cmp {} "$WORK/mnt/{}" \;) | grep . && fail "the bytes differ"
umount_clean "$WORK/mnt"
say "the source's bytes"
