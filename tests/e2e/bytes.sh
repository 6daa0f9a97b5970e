#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The mount shows what the source shows: every kind of file and name, every way to read.
. "$(dirname "$0")/../lib/mount.sh"
here=$TOP/tests/e2e
mkdir "$WORK/src"
python3 "$here/odd_tree.py" "$WORK/src" || fail "the tree could not be made"

mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=1,sampler=torch-distributed,index=walk
within 100 python3 "$here/compare.py" "$WORK/src" "$WORK/mnt" || fail "the mount differs from its source"
within 100 python3 "$here/compare.py" "$WORK/src" "$WORK/mnt" >/dev/null || fail "it differs when read again"

# Changes are answered with EROFS; nothing reaches the source.
m=$WORK/mnt
refused() { "$@" 2>&1 | grep -q 'Read-only file system' || fail "not EROFS: $*"; }
refused touch "$m/sizes/new"
refused rm -f "$m/sizes/f0"
refused mkdir "$m/sizes/newdir"
refused mv "$m/sizes/f0" "$m/sizes/g0"
refused ln -s x "$m/sizes/l"
refused chmod 600 "$m/sizes/f0"
refused truncate -s 0 "$m/sizes/f0"
refused dd if=/dev/zero of="$m/sizes/f0" bs=10 count=1 conv=notrunc
[ "$(stat -c %s "$WORK/src/sizes/f0")" = 1 ] || fail "the source was changed"

df "$m" >/dev/null || fail "df"
umount_clean "$WORK/mnt"
say "as the source"
