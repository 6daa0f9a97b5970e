#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# More folders than inotify may watch, or no inotify: a line says so, the opens are seen all the same, and the
# order is followed to the last sample.
. "$(dirname "$0")/../lib/mount.sh"
n=200
dataset "$WORK/src" $n 5000 40 3
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=64M,staging=32M
orders "$WORK/src" $o 0 1 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
# The limit is that of a user namespace of our own.
limited() { # LIMIT VALUE LINE
	local code
	cat >"$WORK/inside" <<S
echo $2 >/proc/sys/user/$1 || exit 77
exec "$CLAIRFS" run "$WORK/src" -o $o --report "$WORK/report.json" -- \
	"$LIB/reader" "$WORK/src" "$WORK/order" --compute-us 200
S
	within 90 unshare -Ur bash "$WORK/inside" >"$WORK/reader.out" 2>"$WORK/run.log"
	code=$?
	[ $code = 77 ] || { [ $code = 1 ] && grep -q '^unshare:' "$WORK/run.log"; } && skip "no limit of our own"
	[ $code = 0 ] || fail "$1: run gave $code: $(cat "$WORK/run.log")"
	[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] ||
		fail "$1: not the source's bytes"
	grep -q "$3" "$WORK/run.log" || fail "$1: nothing is said: $(cat "$WORK/run.log")"
	jq -c '.streams[0].epochs, .fuse' "$WORK/report.json"
	[ "$(sum opens)" = $((2 * n)) ] || fail "$1: $(sum opens) opens were seen, of $((2 * n))"
	[ "$(sum unpredicted)" = 0 ] || fail "$1: $(sum unpredicted) unpredicted"
	[ "$(sum staged)" -ge $((2 * n * 9 / 10)) ] || fail "$1: only $(sum staged) staged"
}
sum() { jq "[.streams[0].epochs[] | select(.epoch < 2).$1] | add" "$WORK/report.json"; }
limited max_inotify_watches 10 'cannot be watched.*max_user_watches'
limited max_inotify_instances 0 'no inotify.*max_user_instances'
