#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon that is killed while its own threads ask the mount for names does not keep the
# connection open: it ends, readers are told, the command of a run reads on.
. "$(dirname "$0")/../lib/mount.sh"
[ "$(id -u)" = 0 ] || skip "a connection may be abortable by root only"
mkdir "$WORK/src"
dataset "$WORK/src" 600 2000 40 5
o=seed=3,sampler=torch-distributed,ram=8M,staging=4M
one=$(list_of "$WORK/src" | head -n 1)
for i in $(seq 8); do
	mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
	pid=$(pgrep -f "clairfs mount $WORK/src" | head -n 1)
	guardian=$(pgrep -P "$pid")
	kill -KILL "$pid"
	wait_for 30 gone "$pid" || fail "the daemon that was killed is still there ($i)"
	wait_for 30 gone "$guardian" || fail "its guardian is still there ($i)"
done
umount_clean "$WORK/mnt"
mountpoint -q "$WORK/mnt" && fail "still mounted"
for i in 1 2 3; do
	within 60 "$CLAIRFS" run "$WORK/src" -o $o --quiet -- bash -c "
		kill -KILL \$(pgrep -o -P \$PPID) && until cmp '$WORK/src/$one' '$WORK/src/$one'; do sleep 0.1; done
		exit 5" >"$WORK/out" 2>&1
	[ $? = 5 ] || fail "the command of a run whose daemon was killed ($i): $(cat "$WORK/out")"
done
exit 0
