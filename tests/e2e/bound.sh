#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The source gives D + (E-1) max(0, D-C) bytes and opens each fetched sample once: with a data
# set that fits in RAM, one that half fits, and one that half fits in a folder.
. "$(dirname "$0")/../lib/mount.sh"
n=1000 epochs=5
dataset "$WORK/src" $n 60000 8 3
d=$(find "$WORK/src" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
o=seed=5,sampler=torch-distributed,index=imagefolder,epochs=$epochs
orders "$WORK/src" $o 0 $((epochs - 1)) >"$WORK/order"
slow_start "$WORK/src" "$WORK/pfs" latency=300 cache=60 bandwidth=200M

check() { # NAME OPTIONS
	local bytes bound lost opens samples
	slow reset
	mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o,$2"
	reader "$WORK/mnt" "$WORK/order" --threads 2 --compute-us 400 >/dev/null || fail "$1: the reader failed"
	[ "$(read_sum files)" = $((n * epochs)) ] || fail "$1: files"
	wait_for 30 status_is "$WORK/mnt" "[.streams[0].epochs[].opens] | add" -ge $((n * epochs))
	bytes=$(slow_count bytes) opens=$(slow_count open)
	bound=$(status "$WORK/mnt" .pfs_bound_bytes)
	lost=$(status "$WORK/mnt" '(.lost.pages // 0) * 4096 + (.lost.samples // 0) * 100000')
	samples=$(status "$WORK/mnt" .reads.pfs.samples)
	say "$1: $bytes bytes of $bound (D $d, lost $lost), $opens opens, $samples samples"
	status "$WORK/mnt" '.reads | tostring'
	[ "$bound" -ge "$d" ] || fail "$1: the bound $bound is less than the data set"
	[ "$bytes" -le $((bound + bound / 100 + lost)) ] || fail "$1: more bytes than the bound"
	[ "$bytes" -ge $((bound * 9 / 10)) ] || fail "$1: fewer bytes than the bound can be"
	[ "$opens" -le $((samples + samples / 100 + 2)) ] || fail "$1: more opens than samples"
	[ "$(status "$WORK/mnt" .pfs.walks)" = 1 ] || fail "$1: walks"
	umount_clean "$WORK/mnt"
}
check fits ram=$((d * 2)),staging=20M
[ "$(slow_count bytes)" -lt $((d * 3 / 2)) ] || fail "a data set that fits was read again"
check half ram=$((d / 2)),staging=10M
mkdir "$WORK/cache"
check folder "ram=$((d / 4)),staging=10M,free=0,cache=$WORK/cache:$((d / 4))"
