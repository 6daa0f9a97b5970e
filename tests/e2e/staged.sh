#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A DistributedSampler's order, read by loaders with 0, 2 and 8 workers, is predicted to the last
# sample, and staged samples make no request.
. "$(dirname "$0")/../lib/mount.sh"
n=600
dataset "$WORK/src" $n 40000 6 11
o=seed=42,sampler=torch-distributed,index=imagefolder,batch=16
orders "$WORK/src" $o 0 1 >"$WORK/order"
[ "$(grep -c . "$WORK/order")" = $((2 * n)) ] || fail "the order has $(grep -c . "$WORK/order") lines"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"

for workers in 0 2 8; do
	mount_clairfs "$WORK/src" "$WORK/mnt" -o "$o,workers=$workers,ram=200M,staging=100M"
	within 60 "$CLAIRFS" status "$WORK/mnt" --wait >/dev/null || fail "status --wait"
	loader "$WORK/mnt" "$WORK/order" --workers $workers --batch 16 --compute-us 300 ||
		fail "the loader failed"
	[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] ||
		fail "not the source's bytes"
	e='[.streams[0].epochs[] | select(.epoch < 2)]'
	wait_for 30 status_is "$WORK/mnt" "$e | map(.opens) | add" -ge $((2 * n)) ||
		fail "$(status "$WORK/mnt" "$e") opens are not $((2 * n))"
	status "$WORK/mnt" "$e | tostring"
	status_is "$WORK/mnt" "$e | map(.unpredicted) | add" -eq 0 || fail "unpredicted opens, $workers workers"
	status_is "$WORK/mnt" "$e | map(.missed) | add" -le $((n / 50)) || fail "missed, $workers workers"
	status_is "$WORK/mnt" "$e | map(.staged) | add" -ge $((2 * n * 95 / 100)) ||
		fail "too few staged, $workers workers"
	lost=$(status "$WORK/mnt" '.lost.samples // 0')
	late=$(status "$WORK/mnt" "$e | map(.late + .missed) | add")
	status "$WORK/mnt" '.fuse | tostring'
	# A file of 40 KB takes one READ, or a few when it is large.
	status_is "$WORK/mnt" '.fuse.read' -le $(((late + lost) * 4)) || fail "READs of staged samples"
	status_is "$WORK/mnt" '.fuse.open' -le 20 || fail "OPENs of staged samples"
	umount_clean "$WORK/mnt"
done
