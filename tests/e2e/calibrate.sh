#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `clairfs calibrate` sees a slow source's bandwidth and keeps it for the mounts of this host.
. "$(dirname "$0")/../lib/mount.sh"
export XDG_CACHE_HOME=$WORK/xdg
dataset "$WORK/data" 3000 40000 10 1
slow_start "$WORK/data" "$WORK/pfs" latency=100 bandwidth=20M
within 60 "$CLAIRFS" calibrate "$WORK/pfs" -o cache="$WORK/cache:300M" --json >"$WORK/out" 2>"$WORK/err" ||
	fail "calibrate gave $?: $(cat "$WORK/err")"
jq -e '[.pfs[].mb_s] | max | . > 10 and . < 23' "$WORK/out" >/dev/null || fail "the source has 20 MB/s: $(jq -c .pfs "$WORK/out")"
jq -e '.ram_mb_s > 100 and (.caches[0].read_mb_s > 1)' "$WORK/out" >/dev/null || fail "memory, cache: $(cat "$WORK/out")"
ls "$WORK"/cache | grep -q calibrate && fail "a file is left in the cache folder"
mount_clairfs "$WORK/pfs" "$WORK/mnt"
[ "$(status "$WORK/mnt" '.bandwidth.pfs_mb_s > 1')" = true ] || fail "the mount does not know: $(status "$WORK/mnt" '.bandwidth|tostring')"
umount_clean "$WORK/mnt"
# What is damaged is left aside.
for f in "$XDG_CACHE_HOME"/clairfs/bandwidth-*; do echo '{"version": 1, "pfs": [[0, -1], "x"' >"$f"; done
mount_clairfs "$WORK/pfs" "$WORK/mnt"
[ "$(status "$WORK/mnt" .bandwidth.pfs_mb_s)" = 0 ] || fail "a damaged file was believed"
umount_clean "$WORK/mnt"
mkdir "$WORK/empty"
within 60 "$CLAIRFS" calibrate "$WORK/empty" >/dev/null 2>"$WORK/err"
[ $? = 1 ] && grep -q 'too few files' "$WORK/err" || fail "an empty source: $(cat "$WORK/err")"
exit 0
