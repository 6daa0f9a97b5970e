#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# How a mount ends: what lies below it stays, also when it is in use; dead mounts over each
# other are taken away; a source that hangs holds neither `umount` nor a daemon.
. "$(dirname "$0")/../lib/mount.sh"
[ "$(id -u)" = 0 ] || skip "needs root for a mount below the mount"
dataset "$WORK/src" 60 30000 2 6
o=seed=3,sampler=torch-distributed,ram=8M,staging=4M
one=$(list_of "$WORK/src" | head -n 1)
mounts() { grep -c " $1 " /proc/self/mounts; }

# Over a source that is a mount itself, in use, by SIGTERM.
mkdir "$WORK/over"
mount --bind "$WORK/src" "$WORK/over" || skip "no bind mounts"
MOUNTED+=("$WORK/over")
mount_clairfs "$WORK/over" "$WORK/over" -o $o
pid=$(daemon_pid "$WORK/over")
exec 5<"$WORK/over/$one"
kill -TERM "$pid"
wait_for 30 gone "$pid" || fail "SIGTERM: the daemon is still there"
exec 5<&-
[ "$(mounts "$WORK/over")" = 1 ] || fail "$(mounts "$WORK/over") mounts where the source's own should be"
cmp "$WORK/over/$one" "$WORK/src/$one" || fail "the source is not there any more"

# Several dead mounts, one over the other, whose attributes the kernel remembers.
for i in 1 2; do
	mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
	stat "$WORK/mnt" >/dev/null
	pid=$(daemon_pid "$WORK/mnt")
	kill -KILL "$pid"
	wait_for 30 gone "$pid" || fail "SIGKILL: the daemon is still there"
done
[ "$(mounts "$WORK/mnt")" = 1 ] || fail "a dead mount was not taken away by the next one"
stat "$WORK/mnt" >/dev/null 2>&1
ln -s mnt "$WORK/link"
umount_clean "$WORK/link"
[ "$(mounts "$WORK/mnt")" = 0 ] || fail "umount leaves a dead mount"
within 30 "$CLAIRFS" umount "$WORK/mnt" 2>/dev/null && fail "umount of nothing"

# Loads that hang. What is left of a process may wait for its source, but is a zombie.
ended() { ! kill -0 "$1" 2>/dev/null || grep -q '^State:.[ZX]' "/proc/$1/status"; }
slow_start "$WORK/src" "$WORK/pfs" cache=0
slow fault hang:20000 op=read "path=*" >/dev/null
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
pid=$(daemon_pid "$WORK/mnt")
umount_clean "$WORK/mnt"
wait_for 15 ended "$pid" || fail "the daemon waits for a source that hangs"
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
pid=$(daemon_pid "$WORK/mnt")
timeout -s KILL 3 cat "$WORK/mnt/$one" >/dev/null 2>&1
umount -f -l "$WORK/mnt"
wait_for 15 ended "$pid" || fail "the daemon waits for a READ that hangs"
exit 0
