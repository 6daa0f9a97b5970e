#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Opening with O_TRUNC is refused, and empties nothing in the eyes of those who read without a stat.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 20 30000 2 6
mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=3,sampler=torch-distributed,ram=8M,staging=4M
f=$(list_of "$WORK/src" | head -n 1)
cat "$WORK/mnt/$f" >/dev/null || fail "$f cannot be read"
within 30 python3 - "$WORK/src/$f" "$WORK/mnt/$f" <<'P' || fail "O_TRUNC"
import errno, os, sys
want = open(sys.argv[1], "rb").read()
held = os.open(sys.argv[2], os.O_RDONLY)
for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
    try:
        os.open(sys.argv[2], flags | os.O_TRUNC)
        sys.exit("opened with flags %d" % flags)
    except OSError as e:
        if e.errno != errno.EROFS:
            sys.exit("flags %d: %s" % (flags, e))
out = os.memfd_create("copy")
if os.sendfile(out, held, 0, len(want)) != len(want):
    sys.exit("sendfile sees less")
P
cmp "$WORK/src/$f" "$WORK/mnt/$f" || fail "the bytes differ"
umount_clean "$WORK/mnt"
say "refused"
