#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A signal that a batch system sends to all of a job (to write a checkpoint) does not end the mount.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 20 3000 2 6
mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=3,sampler=torch-distributed,ram=2M,staging=1M
pid=$(daemon_pid "$WORK/mnt")
for signal in USR1 USR2 WINCH; do
	for p in "$pid" $(cat /proc/"$pid"/task/*/children); do
		kill -$signal "$p" || fail "$signal cannot be sent"
	done
done
sleep 0.3
gone "$pid" && fail "a signal ended the daemon"
diff -r "$WORK/src" "$WORK/mnt" || fail "the bytes differ"
umount_clean "$WORK/mnt"
say "still there"
