#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A mount that may have few files open, with more readers than that on a slow source: they wait for
# each other, and none gets an error.
. "$(dirname "$0")/../lib/mount.sh"
n=240
dataset "$WORK/src" $n 9000 6 6
list_of "$WORK/src" | shuf --random-source=<(yes) >"$WORK/list"
split -n l/4 "$WORK/list" "$WORK/part."
slow_start "$WORK/src" "$WORK/pfs" latency=20000
mkdir "$WORK/mnt"
all() { # WHAT
	local readers=() p
	for p in "$WORK"/part.a?; do
		within 100 "$LIB/reader" "$WORK/mnt" "$p" --threads 30 >"$p.out" 2>"$p.err" &
		readers+=($!)
	done
	wait "${readers[@]}"
	[ "$(cat "$WORK"/part.a?.out | jq -s '[.[].errors] | add')" = 0 ] ||
		fail "$1: $(cat "$WORK"/part.a?.err | head -n 1)"
}

# The limit that the user can raise himself, then one that nobody can.
for limit in -Sn -n; do
	(ulimit $limit 64 && within 60 "$CLAIRFS" mount "$WORK/pfs" "$WORK/mnt" -o ram=1M,staging=1M \
		</dev/null >>"$LOG" 2>&1) || fail "mount with ulimit $limit gave $?"
	MOUNTED+=("$WORK/mnt")
	all "ulimit $limit"
	umount_clean "$WORK/mnt"
done
say "no errors"
