#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A file that changes again and again, goes away and comes back: after each `status --check` readers
# get what the source has.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 30 20000 3 1
mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=1,sampler=torch-distributed,ram=16M
cat "$WORK"/mnt/*/* >/dev/null || fail "the first reading"
f=$(list_of "$WORK/src" | sed -n 5p)
cp -a "$WORK/src/$f" "$WORK/first"
check() { within 60 "$CLAIRFS" status "$WORK/mnt" --check >"$WORK/out" || fail "status --check gave $?"; }
# The kernel is told by another thread.
same() { [ "$(stat -c %s "$WORK/src/$f")" = "$(stat -c %s "$WORK/mnt/$f")" ] && cmp -s "$WORK/src/$f" "$WORK/mnt/$f"; }
for size in 30000 10000 10001 70000; do
	head -c $size /dev/urandom >"$WORK/new"
	mv "$WORK/new" "$WORK/src/$f"
	check
	wait_for 20 same || fail "$size bytes: not the file that is there now"
done
rm "$WORK/src/$f"
check
unreadable() { ! cat "$WORK/mnt/$f"; }
wait_for 20 unreadable || fail "a removed file can be read"
cp -a "$WORK/first" "$WORK/src/$f"
check
grep -q "$f" "$WORK/out" && fail "what is as it was is told to differ: $(cat "$WORK/out")"
wait_for 20 same || fail "what came back cannot be read"
umount_clean "$WORK/mnt"
say "always what the source has"
