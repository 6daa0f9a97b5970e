#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Each mistake: exit status 2, one line that names it, nothing mounted.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 10 1000 2 1
mkdir "$WORK/mnt"
echo file >"$WORK/file"

mistake() { # WORD-IN-THE-LINE COMMAND…
	local word=$1 code; shift
	within 30 "$CLAIRFS" "$@" >"$WORK/out" 2>"$WORK/err"
	code=$?
	[ $code = 2 ] || fail "status $code, not 2: $* ($(head -n 2 "$WORK/err"))"
	[ "$(wc -l <"$WORK/err")" = 1 ] || fail "not one line: $*: $(cat "$WORK/err")"
	grep -qF -- "$word" "$WORK/err" || fail "the line does not name $word: $(cat "$WORK/err")"
	mountpoint -q "$WORK/mnt" && fail "mounted: $*"
	return 0
}
s=$WORK/src m=$WORK/mnt
mistake bogus bogus
mistake nosuch mount "$WORK/nosuch" "$m"
mistake file mount "$WORK/file" "$m"
mistake nosuch mount "$s" "$WORK/nosuch"
mistake colour mount "$s" "$m" -o colour=red
mistake seed mount "$s" "$m" -o seed=abc
mistake sampler mount "$s" "$m" -o sampler=nosuch
mistake index mount "$s" "$m" -o index=nosuch
mistake world mount "$s" "$m" -o world=0
mistake ranks mount "$s" "$m" -o world=2,ranks=5
mistake ram mount "$s" "$m" -o ram=12Q
mistake cache mount "$s" "$m" -o cache=/nowhere
mistake config mount "$s" "$m" -o config="$WORK/nosuch.ini"
mistake writable mount "$s" "$m" -o writable=1
mistake --nosuch mount "$s" "$m" --nosuch
mistake list mount "$s" "$m" -o sampler=list:"$WORK/nosuch"
mistake -- run "$s"
mistake nosuch run "$WORK/nosuch" -- true
printf '[clairfs]\nsede = 1\n' >"$WORK/bad.ini"
mistake sede mount "$s" "$m" -o config="$WORK/bad.ini"
mistake mnt umount "$m"
mistake mnt status "$m"
mistake mnt set "$m" seed=1

# Arguments: too few, too many, not what they should be.
for verb in run mount umount set verify trace; do
	mistake "too few" $verb
done
mistake "missing" run "$s" --
mistake "too many" run "$s" true
mistake file run "$WORK/file" -- true
mistake covered run / -- true
mistake empty run "" -- true
mistake empty mount "" "$m"
mistake "too many" mount "$s" "$m" extra
mistake folder mount "$s" "$WORK/file"
mistake --report run "$s" --report "$WORK/nosuch/report" -- true
mistake --report run "$s" --report "$s" -- true
mistake -o mount "$s" "$m" -o
mistake --json status "$m" --json=1
mistake nosuch status "$WORK/nosuch"
mistake nosuch umount "$WORK/nosuch"
mistake nosuch set "$WORK/nosuch" seed=1
mistake nosuch verify "$WORK/nosuch"
mistake cache verify "$s"
mistake nosuch trace "$WORK/nosuch"
mistake SOURCE order
mistake nosuch order "$WORK/nosuch"
mistake seed order "$s"
mistake --epoch order "$s" -o seed=1 --epoch x
mistake --epoch order "$s" -o seed=1 --epoch -1
mistake --rank order "$s" -o seed=1,sampler=torch-distributed --rank 5
mistake sampler order "$s" -o seed=1,sampler=nosuch
mistake SOURCE discover
mistake "line 1" discover "$s" "$WORK/file"
# Values.
for o in seed seed= seed=99999999999999999999999 epoch=-1 ram=-5 ram= world=abc threads=x log=nosuch \
	cache="$WORK/file" drop_last=maybe shuffle=2 index=list:"$WORK/nosuch"; do
	mistake "${o%%=*}" mount "$s" "$m" -o "$o"
	mistake "${o%%=*}" run "$s" -o "$o" -- true
done
mistake ranks mount "$s" "$m" -o world=2,ranks=1-
mistake ranks mount "$s" "$m" -o world=2,ranks=3-1
mistake ":1:" mount "$s" "$m" -o config="$WORK/file"

"$CLAIRFS" --version | grep -q '[0-9]\.[0-9]' || fail "--version"
for verb in run mount umount status set order verify; do
	within 10 "$CLAIRFS" $verb --help >"$WORK/help" 2>&1 || fail "$verb --help gave $?"
	grep -q "$verb" "$WORK/help" || fail "$verb --help does not tell about it"
done

mount_clairfs "$s" "$m" -o seed=1,sampler=torch-distributed
within 10 "$CLAIRFS" set "$m" colour=red 2>"$WORK/err" && fail "set of a word that is none"
grep -q colour "$WORK/err" || fail "set does not name the word"
mistake_mounted() { # WORD COMMAND…: on a mount that stays
	local word=$1 code; shift
	within 30 "$CLAIRFS" "$@" >"$WORK/out" 2>"$WORK/err"
	code=$?
	[ $code = 2 ] || fail "status $code, not 2: $* ($(head -n 2 "$WORK/err"))"
	[ "$(wc -l <"$WORK/err")" = 1 ] || fail "not one line: $*: $(cat "$WORK/err")"
	grep -qF -- "$word" "$WORK/err" || fail "the line does not name $word: $(cat "$WORK/err")"
}
mistake_mounted colour set "$m" colour=red
mistake_mounted seed set "$m" seed
mistake_mounted seed set "$m" seed=abc
mistake_mounted =1 set "$m" =1
mistake_mounted img set "$m/class000/img000000.png" seed=1
[ "$(status "$m" '.streams[0].order.seed')" = 1 ] || fail "a mistake changed the seed"
umount_clean "$m"
