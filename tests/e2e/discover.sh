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
list_of "$WORK/src" | shuf --random-source=<(yes) | head -n 4 >"$WORK/noise"
within 120 "$CLAIRFS" discover "$WORK/src" "$WORK/noise" >/dev/null
[ $? = 1 ] || fail "discover has an answer to four opens"

# Samples that are only numbers; with process ids (three opens a sample) a handful of opens.
answer_is() { # WORDS… of the last answer
	local w
	for w in "$@"; do
		tr ' ;' '\n\n' <"$WORK/answer" | grep -qx -- "$w" || fail "no $w in: $(cat "$WORK/answer")"
	done
}
"$CLAIRFS" order --n 20000 -o seed=123456 --limit 120 >"$WORK/numbers"
within 120 "$CLAIRFS" discover --n 20000 - <"$WORK/numbers" >"$WORK/answer" || fail "--n gave $?"
answer_is sampler=torch-distributed seed=123456
awk '{ w = int((NR - 1) / 4) % 3; for (i = 0; i < 3; i++) print 500 + w, $1 }' "$WORK/numbers" |
	head -n 108 >"$WORK/threads"
within 120 "$CLAIRFS" discover --n 20000 "$WORK/threads" --json >"$WORK/answer.json" ||
	fail "discover with process ids gave $?"
want "the seed from 36 samples" [ "$(json "$WORK/answer.json" '.words.seed, .found' | xargs)" = "123456 true" ]
"$CLAIRFS" order --n 60000 -o seed=42,world=4,ranks=2 --rank 2 --limit 150 >"$WORK/rank"
within 120 "$CLAIRFS" discover --n 60000 "$WORK/rank" >"$WORK/answer" || fail "one rank: $?"
answer_is seed=42 world=4 ranks=2
# The index of the data set's order stands for a path.
"$CLAIRFS" order "$WORK/src" -o seed=0,index=imagefolder --limit 120 >"$WORK/numbers"
within 120 "$CLAIRFS" discover "$WORK/src" "$WORK/numbers" -o index=imagefolder >"$WORK/answer" ||
	fail "indices: $?"
answer_is sampler=torch-distributed seed=0
for line in nonsense 20000 '-1' '7 ' '7 x' '99999999999999999999'; do
	echo "$line" | within 60 "$CLAIRFS" discover --n 20000 >/dev/null 2>"$WORK/mistake"
	[ $? = 2 ] && grep -q 'line 1' "$WORK/mistake" || fail "'$line': $(cat "$WORK/mistake")"
done
for n in 0 1 2 2147483648; do
	yes 0 | head -n 100 | within 60 "$CLAIRFS" discover --n $n >/dev/null 2>"$WORK/mistake"
	code=$?
	[ $code = $((n == 1 || n == 2 ? 1 : 2)) ] || fail "--n $n gave $code: $(cat "$WORK/mistake")"
done

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
