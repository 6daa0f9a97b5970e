#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A cache's disk that is full, or becomes full: slower, never wrong; the floor of free space and the
# cache's bound hold.
. "$(dirname "$0")/../lib/mount.sh"
[ "$(id -u)" = 0 ] || skip "needs root for a small file system"
n=300
dataset "$WORK/src" $n 40000 4 8
orders "$WORK/src" seed=3,sampler=torch-distributed,index=imagefolder 0 1 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
small() { # SIZE
	umount "$WORK/disk" 2>/dev/null
	mkdir -p "$WORK/disk"
	mount -t tmpfs -o size=$1 small "$WORK/disk" || skip "no tmpfs"
	MOUNTED=("$WORK/disk" "${MOUNTED[@]}")
}
check() { # NAME CACHE-SIZE FREE
	mount_clairfs "$WORK/src" "$WORK/mnt" -o \
		"seed=3,sampler=torch-distributed,index=imagefolder,ram=1M,staging=4M,free=$3,cache=$WORK/disk/c:$2"
	reader "$WORK/mnt" "$WORK/order" --threads 2 >/dev/null || fail "$1: the reader failed"
	[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] ||
		fail "$1: not the source's bytes"
	df -B1 --output=used,avail "$WORK/disk" | tail -n 1
	umount_clean "$WORK/mnt"
}
small 6M
check "larger than its disk" 100M 0
small 8M
check "a floor" 100M 4M
[ "$(df -B1 --output=avail "$WORK/disk" | tail -n 1)" -ge $((4 * 1048576 - 262144)) ] || fail "the floor does not hold"
small 30M
check "a bound" 5M 0
[ "$(du -sB1 "$WORK/disk/c" | cut -f1)" -le $((5 * 1048576 + 1048576)) ] || fail "the bound does not hold: $(du -sB1 "$WORK/disk/c")"
small 10M
dd if=/dev/zero of="$WORK/disk/filler" bs=1M count=9 status=none
check "a full disk" 100M 0
