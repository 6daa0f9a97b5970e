#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# catalog= that names a device or a pipe, as in catalog=/dev/null: it is neither waited for nor replaced
# by a file.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 20 3000 2 6
mkfifo "$WORK/pipe"
ln -s /dev/null "$WORK/null"
for c in "$WORK/pipe" "$WORK/null"; do
	mount_clairfs "$WORK/src" "$WORK/mnt" -o ram=1M,staging=1M,catalog="$c"
	cat "$WORK"/mnt/*/* >/dev/null || fail "cannot be read with catalog=$c"
	umount_clean "$WORK/mnt"
done
[ -p "$WORK/pipe" ] || fail "the pipe was replaced: $(stat -c %F "$WORK/pipe")"
[ -L "$WORK/null" ] && [ -c "$WORK/null" ] || fail "the device was replaced: $(stat -c %F "$WORK/null")"
say "left as they are"
