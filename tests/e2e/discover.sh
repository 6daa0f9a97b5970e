#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A mount that is told nothing finds the order, and remembers it for the next; a loader that follows
# none gets right bytes; `discover` finds it in a file of opens.
. "$(dirname "$0")/../lib/mount.sh"
export HOME=$WORK/home XDG_CACHE_HOME=$WORK/home/cache
mkdir -p "$XDG_CACHE_HOME"
n=1500
dataset "$WORK/src" $n 3000 6 4
orders "$WORK/src" seed=0,sampler=torch-distributed,index=imagefolder 0 2 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
awk 'NF { print } !NF { exit }' "$WORK/order" >"$WORK/first"

within 120 "$CLAIRFS" discover "$WORK/src" "$WORK/first" >"$WORK/answer" || fail "discover gave $?"
grep -q 'sampler=torch-distributed' "$WORK/answer" && grep -qw 'seed=0' "$WORK/answer" ||
	fail "discover: $(cat "$WORK/answer")"
list_of "$WORK/src" | shuf --random-source=<(yes) | head -n 10 >"$WORK/noise"
within 120 "$CLAIRFS" discover "$WORK/src" "$WORK/noise" >/dev/null
[ $? = 1 ] || fail "discover has an answer to ten opens"

o=ram=40M,staging=10M
how() { [ "$(status "$WORK/mnt" '.streams[0].order.how')" = "$1" ]; }
same() {
	[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$2")" ] ||
		fail "$1: not the source's bytes"
}
mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
reader "$WORK/mnt" "$WORK/first" --limit 300 >/dev/null || fail "the reader failed"
wait_for 60 how found || fail "not found: $(status "$WORK/mnt" '.discovery | tostring')"
reader "$WORK/mnt" "$WORK/order" --compute-us 200 >/dev/null || fail "the reader failed"
same "first mount" "$WORK/native"
status "$WORK/mnt" '.streams[0].order | tostring'
umount_clean "$WORK/mnt"

mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
reader "$WORK/mnt" "$WORK/first" --limit 100 >/dev/null || fail "the reader failed"
wait_for 60 how remembered || fail "not remembered: $(status "$WORK/mnt" '.streams[0].order | tostring')"
umount_clean "$WORK/mnt"

# No order at all: fewer opens than all seeds would be searched for.
rm -rf "$XDG_CACHE_HOME"/*
list_of "$WORK/src" | shuf --random-source=<(yes 7) | head -n 250 >"$WORK/random"
"$LIB/reader" "$WORK/src" "$WORK/random" >"$WORK/native-random"
mount_clairfs "$WORK/src" "$WORK/mnt" -o $o
reader "$WORK/mnt" "$WORK/random" >/dev/null || fail "the reader failed"
same "no order" "$WORK/native-random"
how unknown || fail "an answer to opens that follow no order"
umount_clean "$WORK/mnt"
