#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# More folders than inotify may watch: a line says so, the opens are seen all the same, and the
# order is followed to the last sample.
. "$(dirname "$0")/../lib/mount.sh"
n=200
dataset "$WORK/src" $n 5000 40 3
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=64M,staging=32M
orders "$WORK/src" $o 0 1 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
# The limit is that of a user namespace of our own.
cat >"$WORK/inside" <<S
echo 10 >/proc/sys/user/max_inotify_watches || exit 77
exec "$CLAIRFS" run "$WORK/src" -o $o --report "$WORK/report.json" -- \
	"$LIB/reader" "$WORK/src" "$WORK/order" --compute-us 200
S
within 90 unshare -Ur bash "$WORK/inside" >"$WORK/reader.out" 2>"$WORK/run.log"
code=$?
[ $code = 77 ] || { [ $code = 1 ] && grep -q '^unshare:' "$WORK/run.log"; } && skip "no limit of our own"
[ $code = 0 ] || fail "run gave $code: $(cat "$WORK/run.log")"
[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] || fail "not the source's bytes"
grep -q 'cannot be watched.*max_user_watches' "$WORK/run.log" || fail "nothing is said: $(cat "$WORK/run.log")"
jq -c '.streams[0].epochs, .fuse' "$WORK/report.json"
sum() { jq "[.streams[0].epochs[] | select(.epoch < 2).$1] | add" "$WORK/report.json"; }
[ "$(sum opens)" = $((2 * n)) ] || fail "$(sum opens) opens were seen, of $((2 * n))"
[ "$(sum unpredicted)" = 0 ] || fail "$(sum unpredicted) unpredicted"
[ "$(sum staged)" -ge $((2 * n * 9 / 10)) ] || fail "only $(sum staged) staged"
