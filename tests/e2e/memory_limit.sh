#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Budgets that are larger than the memory of the mount's control group: less is kept, and the mount
# lives.
. "$(dirname "$0")/../lib/mount.sh"
[ "$(id -u)" = 0 ] || skip "needs root for a control group"
group=/sys/fs/cgroup/memory/clairfs-test-$RANDOM$RANDOM
[ -d /sys/fs/cgroup/memory ] && mkdir "$group" 2>/dev/null && limit=$group/memory.limit_in_bytes ||
	{ group=/sys/fs/cgroup/${group##*/}; mkdir "$group" 2>/dev/null && limit=$group/memory.max; }
[ -n "${limit:-}" ] && echo 96M >"$limit" 2>/dev/null || { rmdir "$group" 2>/dev/null; skip "no control group of our own"; }
trap 'code=$?; umount -l "$WORK/mnt" 2>/dev/null; wait_for 5 rmdir "$group"; (exit $code); cleanup' EXIT

dataset "$WORK/src" 2000 70000 10 6
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=1G,staging=200M
orders "$WORK/src" $o 0 1 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
mkdir "$WORK/mnt"
(echo $BASHPID >"$group/cgroup.procs" && within 60 "$CLAIRFS" mount "$WORK/src" "$WORK/mnt" -o $o \
	</dev/null >>"$LOG" 2>&1) || fail "the mount gave $?"
MOUNTED+=("$WORK/mnt")
"$LIB/reader" "$WORK/mnt" "$WORK/order" >"$WORK/read" 2>"$WORK/err" || fail "$(head -n 1 "$WORK/err")"
[ "$(jq -r .hash "$WORK/read")" = "$(jq -r .hash "$WORK/native")" ] || fail "the bytes differ"
budget=$(status "$WORK/mnt" .ram.budget)
[ "$budget" -gt 0 ] && [ "$budget" -lt $((96 << 20)) ] || fail "ram may take $budget bytes"
umount_clean "$WORK/mnt"
say "lives with $budget bytes"
