#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 200 readers at once on a slow source, without an order and with a wrong one, so that each of their
# reads waits: none waits for ever, the bytes are right, and the mount goes at the first try.
. "$(dirname "$0")/../lib/mount.sh"
n=400
dataset "$WORK/src" $n 8000 4 3
list_of "$WORK/src" | shuf --random-source=<(yes) >"$WORK/list"
"$LIB/reader" "$WORK/src" "$WORK/list" >"$WORK/native"
slow_start "$WORK/src" "$WORK/pfs" latency=2000 bandwidth=100M

twice() { # OPTIONS
	local i readers=() pid
	mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$1"
	# 4 × 50 threads; each process reads all.
	for i in 1 2 3 4; do
		within 100 "$LIB/reader" "$WORK/mnt" "$WORK/list" --threads 50 >"$WORK/reader.$i" 2>>"$WORK/reader.log" &
		readers+=($!)
	done
	for pid in "${readers[@]}"; do
		wait "$pid" || fail "$1: a reader gave $?"
	done
	for i in 1 2 3 4; do
		[ "$(jq .hash "$WORK/reader.$i")" = "$(jq .hash "$WORK/native")" ] || fail "$1: not the source's bytes"
		[ "$(jq .errors "$WORK/reader.$i")" = 0 ] || fail "$1: errors"
	done
	umount_clean "$WORK/mnt"
}
twice ram=1M,staging=1M,threads=4
twice seed=12345,sampler=torch-distributed,index=imagefolder,ram=1M,staging=1M,threads=4
exit 0
