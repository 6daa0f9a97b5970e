#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `clairfs run`: the command sees a mount over SOURCE, nobody else does; status, signals,
# working directory, report.
. "$(dirname "$0")/../lib/mount.sh"
n=300
dataset "$WORK/src" $n 20000 4 2
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=64M,staging=32M
orders "$WORK/src" $o 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
run() { within 90 "$CLAIRFS" run "$@" 2>>"$WORK/run.log"; }

run "$WORK/src" -o $o --report "$WORK/report.json" -- \
	"$LIB/reader" "$WORK/src" "$WORK/order" --compute-us 300 >"$WORK/reader.out" || fail "run gave $?"
[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "not the source's bytes"
jq -c '.streams[0].epochs' "$WORK/report.json" || fail "the report is no JSON"
[ "$(jq '.streams[0].epochs[0].opens' "$WORK/report.json")" = $n ] || fail "opens in the report"
[ "$(jq '.streams[0].epochs[0].unpredicted' "$WORK/report.json")" = 0 ] || fail "unpredicted"
[ "$(jq -r .source "$WORK/report.json")" = "$WORK/src" ] || fail "source in the report"
[ "$(jq .samples "$WORK/report.json")" = $n ] || fail "samples in the report"

run "$WORK/src" -o $o --quiet -- grep -q " $WORK/src fuse" /proc/self/mounts || fail "no mount inside"
grep -q " $WORK/src fuse" /proc/self/mounts && fail "the mount is seen outside"
run "$WORK/src" -o $o --quiet -- sh -c 'exit 7'
[ $? = 7 ] || fail "exit status"
run "$WORK/src" -o $o --quiet -- sh -c 'kill -TERM $$'
[ $? = 143 ] || fail "status of a signal"
run "$WORK/src" -o $o --quiet -- "$WORK/nosuch"
[ $? = 127 ] || fail "a command that is not there"
run "$WORK/src" -o $o --quiet -- "$WORK/order"
[ $? = 126 ] || fail "a command that cannot be run"
got=$(cd "$WORK/src/class001" && run "$WORK/src" -o $o --quiet -- sh -c 'pwd; stat -f -c %T .; id -u')
[ "$got" = "$(printf '%s\n%s\n%s' "$WORK/src/class001" fuseblk "$(id -u)")" ] ||
	[ "$got" = "$(printf '%s\n%s\n%s' "$WORK/src/class001" fuse "$(id -u)")" ] || fail "working directory: $got"
echo hello | run "$WORK/src" -o $o --quiet -- cat | grep -q hello || fail "standard input"
got=$(WORLD_SIZE=2 RANK=1 run "$WORK/src" -o $o --quiet --report "$WORK/r2.json" -- true; jq -c '.streams[0].order | [.world, .ranks]' "$WORK/r2.json")
[ "$got" = '[2,[1]]' ] || fail "world and rank of the environment: $got"

left() { pgrep -f "clairfs (run|mount) $WORK/src" >/dev/null; }
none_left() { ! left; }
wait_for 20 none_left || fail "processes are left: $(pgrep -af "clairfs (run|mount) $WORK/src")"
