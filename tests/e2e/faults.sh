#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A source that gives EIO, ESTALE, short reads and hangs: retried, then told plainly; the mount
# goes on. Files that are changed or removed under the mount.
. "$(dirname "$0")/../lib/mount.sh"
n=200
dataset "$WORK/src" $n 30000 4 8
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=64M,staging=32M
orders "$WORK/src" $o 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
slow_start "$WORK/src" "$WORK/pfs" latency=200

same() { # NAME: all is read, and right
	reader "$WORK/mnt" "$WORK/order" --threads 2 >/dev/null || fail "$1: the reader failed"
	[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "$1: not the source's bytes"
}
for fault in "short op=read" "estale op=open from=5 count=3" "eio op=read from=20 count=2" \
	"estale op=read from=7 count=2" "delay:50 op=read from=1 count=40"; do
	slow fault $fault || fail "fault $fault"
	mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
	same "$fault"
	[ "$(slow_count faults)" -gt 0 ] || fail "$fault did not happen"
	umount_clean "$WORK/mnt"
	slow clear
	slow reset
done

# For good: an error for that file, and for that one only.
slow fault eio op=read 'path=*img000007*'
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
reader "$WORK/mnt" "$WORK/order" >/dev/null 2>"$WORK/errors" && fail "EIO was not told"
[ "$(read_sum errors)" = 1 ] || fail "EIO: $(read_sum errors) errors, not 1"
grep -q 'img000007.*Input/output error' "$WORK/errors" || fail "not EIO: $(head -n 3 "$WORK/errors")"
slow clear
within 30 cmp "$WORK/mnt/class003/img000007.png" "$WORK/src/class003/img000007.png" ||
	fail "a file is not read again when the source is well"
umount_clean "$WORK/mnt"

# One file hangs: the others come, the mount can be asked and taken away.
slow fault hang:8000 op=read 'path=*img000005*'
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
grep -v img000005 "$WORK/order" >"$WORK/others"
reader "$WORK/mnt" "$WORK/others" --threads 2 >/dev/null || fail "others wait for one that hangs"
status "$WORK/mnt" .samples >/dev/null || fail "status hangs"
umount_clean "$WORK/mnt"
slow clear

# Changed and removed files: who opens after it was noticed gets the new file.
mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
same "before the change"
victim=class001/img000001.png
head -c 12345 /dev/urandom >"$WORK/src/$victim"
within 30 "$CLAIRFS" status "$WORK/mnt" --check >/dev/null 2>>"$LOG"
is_new() { cmp -s "$WORK/src/$victim" "$WORK/mnt/$victim"; }
wait_for 20 is_new || fail "a changed file is not noticed by status --check"
rm "$WORK/src/class002/img000002.png"
within 30 "$CLAIRFS" status "$WORK/mnt" --check >/dev/null 2>>"$LOG"
within 30 cat "$WORK/mnt/class002/img000002.png" >/dev/null 2>&1
reader "$WORK/mnt" "$WORK/order" >/dev/null 2>&1
[ "$(read_sum errors)" -le 1 ] || fail "a removed file breaks others"
umount_clean "$WORK/mnt"
