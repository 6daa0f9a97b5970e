#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A source that stumbles while it is listed: tried again, and every file is there. One that cannot be
# listed at all is no mount, instead of a mount with empty folders.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 60 3000 6 1
slow_start "$WORK/src" "$WORK/pfs"
mkdir "$WORK/mnt"
for fault in "eio op=readdir count=1" "eio op=readdir from=4 count=2" "estale op=getattr from=20 count=2"; do
	slow clear
	slow fault $fault || fail "fault $fault"
	mount_clairfs "$WORK/pfs" "$WORK/mnt" -o ram=1M,staging=1M
	slow clear
	diff -rq "$WORK/src" "$WORK/mnt" || fail "$fault: not the source"
	umount_clean "$WORK/mnt"
done
[ "$(slow_count faults)" -gt 0 ] || fail "no fault happened"
slow fault "eio" op=readdir "path=*class003*" || fail "fault"
within 60 "$CLAIRFS" mount "$WORK/pfs" "$WORK/mnt" -o ram=1M,staging=1M 2>"$WORK/err"
code=$?
mountpoint -q "$WORK/mnt" && MOUNTED+=("$WORK/mnt")
[ $code = 1 ] || fail "a source that cannot be listed gave $code"
grep -q 'cannot be listed: Input/output error' "$WORK/err" || fail "told as: $(cat "$WORK/err")"
say "listed whole or not at all"
