#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The inotify queue overflows while the daemon stands still: opens are lost, the position is found
# again from those that follow.
. "$(dirname "$0")/../lib/mount.sh"
limit=/proc/sys/fs/inotify/max_queued_events
[ -w $limit ] || skip "the length of the inotify queue cannot be set"
before=$(cat $limit)
restore() { echo "$before" >$limit; }
trap 'restore; cleanup' EXIT
opt=seed=42,sampler=torch-distributed,index=imagefolder
dataset "$WORK/src" 3000 4000 6 1
orders "$WORK/src" $opt 0 2 >"$WORK/order"
echo 64 >$limit # holds for what is made from now on
mount_clairfs "$WORK/src" "$WORK/mnt" -o "$opt,ram=100M,staging=100M"
restore
within 60 "$CLAIRFS" status "$WORK/mnt" --wait >/dev/null
pid=$(daemon_pid "$WORK/mnt")
head -n 3301 "$WORK/order" >"$WORK/first"
sed -n '3302,4200p' "$WORK/order" >"$WORK/second"
tail -n +4201 "$WORK/order" >"$WORK/rest"
reader "$WORK/mnt" "$WORK/first" >/dev/null || fail "the first files"
status "$WORK/mnt" .process.pid >/dev/null # its events are in
kill -STOP "$pid"
sed "s#^#$WORK/mnt/#" "$WORK/second" | within 60 xargs cat >/dev/null # (the reader opens the root)
code=$?
kill -CONT "$pid"
[ $code = 0 ] || fail "staged files cannot be read without the daemon: $code"
reader "$WORK/mnt" "$WORK/rest" --compute-us 300 >/dev/null || fail "the rest"
status_is "$WORK/mnt" '.lost.overflows // .overflows' -ge 1 || fail "no overflow: $(status "$WORK/mnt" 'del(.streams)|tostring')"
[ "$(status "$WORK/mnt" .streams[0].order.trusted)" = true ] || fail "the order is not trusted any more"
status_is "$WORK/mnt" '.streams[0].epochs[-1] | select(.epoch == 2) | .staged' -ge 2900 ||
	fail "$(status "$WORK/mnt" '.streams[0].epochs|tostring')"
umount_clean "$WORK/mnt"
