#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# clairfs trace prints readers' opens in their order, and ends with the mount.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 40 5000 3 5
m=$WORK/mnt
mount_clairfs "$WORK/src" "$m" -o seed=1,sampler=torch-distributed,ram=20M,staging=10M
first=$(list_of "$WORK/src" | head -n 1)
timeout 60 "$CLAIRFS" trace "$m" >"$WORK/trace" 2>>"$LOG" &
tracer=$!
started $tracer

# Until the trace has begun, opens are not in it.
begun() { head -c 1 "$m/$first" >/dev/null && [ -s "$WORK/trace" ]; }
wait_for 30 begun || fail "no open is traced"
list_of "$WORK/src" | tail -n 20 >"$WORK/names"
while read -r name; do head -c 1 "$m/$name" >/dev/null; done <"$WORK/names"
tail_is() { tail -n 20 "$WORK/trace" | sed 's/^[0-9]* //' | cmp -s - "$WORK/names"; }
wait_for 30 tail_is || fail "not the opens that were made: $(tail -n 3 "$WORK/trace")"
umount_clean "$m"
wait_for 30 gone $tracer || fail "trace goes on without a mount"
