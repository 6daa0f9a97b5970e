#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# With the wrong seed the bytes are right, it is noticed, and the source is not read in vain.
. "$(dirname "$0")/../lib/mount.sh"
n=2000
dataset "$WORK/src" $n 20000 8 4
d=$(find "$WORK/src" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
o=sampler=torch-distributed,index=imagefolder
orders "$WORK/src" $o,seed=1 0 1 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
slow_start "$WORK/src" "$WORK/pfs" latency=300 cache=60
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o,seed=2,ram=4M,staging=4M
(awk 'NF { print } !NF { exit }' "$WORK/order" | head -n 500) >"$WORK/first"
reader "$WORK/mnt" "$WORK/first" >/dev/null || fail "the reader failed"
wait_for 30 status_is "$WORK/mnt" '[.streams[0].epochs[].opens] | add' -ge 500 || fail "opens are not seen"
status "$WORK/mnt" '.streams[0] | tostring'
wait_for 10 status_is "$WORK/mnt" '[.streams[0].epochs[].unpredicted] | add' -ge 250 || fail "not noticed"
[ "$(status "$WORK/mnt" '.streams[0].order.trusted')" = false ] || fail "the order is trusted after 500 opens"
bytes=$(slow_count bytes)
reader "$WORK/mnt" "$WORK/order" >/dev/null || fail "the reader failed"
[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] ||
	fail "not the source's bytes"
more=$(($(slow_count bytes) - bytes))
say "two epochs of $d bytes took $more bytes of the source"
[ $more -le $((2 * d + d / 5)) ] || fail "the source is read in vain"
umount_clean "$WORK/mnt"
