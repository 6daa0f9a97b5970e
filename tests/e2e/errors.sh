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

"$CLAIRFS" --version | grep -q '[0-9]\.[0-9]' || fail "--version"
for verb in run mount umount status set order verify; do
	within 10 "$CLAIRFS" $verb --help >"$WORK/help" 2>&1 || fail "$verb --help gave $?"
	grep -q "$verb" "$WORK/help" || fail "$verb --help does not tell about it"
done

mount_clairfs "$s" "$m" -o seed=1,sampler=torch-distributed
within 10 "$CLAIRFS" set "$m" colour=red 2>"$WORK/err" && fail "set of a word that is none"
grep -q colour "$WORK/err" || fail "set does not name the word"
umount_clean "$m"
