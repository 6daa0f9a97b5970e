#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The command as mount(8) calls the helper of a file system type, with fstab's words; and a seed that
# is set on the root while the order is still being looked for.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 300 3000 3 1
mkdir "$WORK/mnt"
ln -s "$CLAIRFS" "$WORK/mount.clairfs"
within 60 "$WORK/mount.clairfs" "$WORK/src" "$WORK/mnt" -sv -n -o rw,noatime,_netdev,ram=16M -t fuse.clairfs \
	</dev/null >>"$LOG" 2>&1 || fail "the helper gave $?"
MOUNTED+=("$WORK/mnt")
mountpoint -q "$WORK/mnt" || fail "the helper mounted nothing"
[ "$(status "$WORK/mnt" '.streams[0].order.how')" = unknown ] || fail "an order is known that nobody gave"
# Opens that follow no order: the search goes on.
list_of "$WORK/src" | shuf --random-source=<(yes) >"$WORK/list"
reader "$WORK/mnt" "$WORK/list" --limit 20 >/dev/null || fail "the reader failed"

within 30 "$CLAIRFS" set "$WORK/mnt" seed=12 || fail "set gave $?"
[ "$(status "$WORK/mnt" '.streams[0].order | [.seed, .sampler] | @json')" = '[12,"torch-distributed"]' ] ||
	fail "after set: $(status "$WORK/mnt" '.streams[0].order | tostring')"
[ "$(status "$WORK/mnt" '.streams[0].order.how')" = given ] || fail "a seed that was set is not told as given"
orders "$WORK/src" seed=12,sampler=torch-distributed 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
reader "$WORK/mnt" "$WORK/order" >/dev/null || fail "the reader failed"
[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "not the source's bytes"
[ "$(status "$WORK/mnt" '.streams[0].order.seed')" = 12 ] ||
	fail "the seed that was set did not stay: $(status "$WORK/mnt" '.streams[0].order | tostring')"
# A mount is told once.
[ "$(within 30 "$CLAIRFS" status | grep -c '(process ')" = 1 ] || fail "status: $("$CLAIRFS" status)"
umount_clean "$WORK/mnt"

within 30 "$WORK/mount.clairfs" "$WORK/src" "$WORK/mnt" -o colour=red 2>"$WORK/err"
[ $? = 2 ] && grep -q colour "$WORK/err" || fail "a wrong word: $(cat "$WORK/err")"
mountpoint -q "$WORK/mnt" && fail "mounted with a wrong word"
exit 0
