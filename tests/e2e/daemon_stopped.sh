#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon that is stopped for a while: readers wait and go on. While it is stopped the mount can be
# taken away, and the daemon ends as soon as it runs again.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 200 30000 4 6
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=2M,staging=1M
orders "$WORK/src" $o 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
pid=$(daemon_pid "$WORK/mnt")
within 100 "$LIB/reader" "$WORK/mnt" "$WORK/order" --compute-us 1000 >"$WORK/read" 2>"$WORK/err" &
reader=$!
kill -STOP "$pid" || fail "it cannot be stopped"
sleep 1
kill -CONT "$pid"
wait $reader || fail "a reader failed: $(head -n 1 "$WORK/err")"
[ "$(jq -r .hash "$WORK/read")" = "$(jq -r .hash "$WORK/native")" ] || fail "the bytes differ"

kill -STOP "$pid"
within 30 "$CLAIRFS" umount "$WORK/mnt" 2>>"$LOG"
code=$?
kill -CONT "$pid"
[ $code = 0 ] || fail "umount of a stopped daemon's mount gave $code"
mountpoint -q "$WORK/mnt" && fail "it is still mounted"
MOUNTED=()
wait_for 20 gone "$pid" || fail "the daemon stays"
say "stopped and gone"
