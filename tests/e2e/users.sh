#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# An ordinary user, data that are readable only through a supplementary group, and root.
. "$(dirname "$0")/../lib/mount.sh"
user=$(test_user) || exit 77
command -v runuser >/dev/null || skip "no runuser"
command -v unshare >/dev/null || skip "no unshare"
n=200
dataset "$WORK/src" $n 10000 4 8
getent group clairproj >/dev/null || groupadd clairproj || skip "no groupadd"
usermod -aG clairproj "$user"
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=16M,staging=8M
orders "$WORK/src" $o 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
chmod 644 "$WORK/order"
mkdir -m 700 "$WORK/home" && chown "$user" "$WORK/home"
# The user must reach the build.
runuser -u "$user" -- test -x "$CLAIRFS" || {
	cp -r "$BUILD/tools/clairfs" "$LIB/reader" "$WORK" 2>/dev/null
	CLAIRFS=$WORK/clairfs LIB=$WORK
	chmod 755 "$WORK/clairfs" "$WORK/reader"
}
as_user() { within 90 runuser -u "$user" -- env XDG_RUNTIME_DIR="$WORK/home" XDG_CACHE_HOME="$WORK/home/cache" HOME="$WORK/home" "$@"; }
as_user unshare -Ur true 2>/dev/null && namespaces=1 || namespaces=0

run_as_user() { # NAME
	as_user "$CLAIRFS" run "$WORK/src" -o $o --quiet -- "$LIB/reader" "$WORK/src" "$WORK/order" \
		>"$WORK/reader.out" 2>"$WORK/run.log" || { cat "$WORK/run.log"; fail "$1: run gave $?"; }
	[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "$1: not the source's bytes"
	[ "$(as_user "$CLAIRFS" run "$WORK/src" -o $o --quiet -- id -u 2>>"$WORK/run.log")" = "$(id -u "$user")" ] ||
		fail "$1: the command's user id"
}
if [ $namespaces = 1 ]; then
	run_as_user "ordinary user"
	chown -R root:clairproj "$WORK/src"
	find "$WORK/src" -type d -exec chmod 750 {} +
	find "$WORK/src" -type f -exec chmod 640 {} +
	run_as_user "supplementary group"
	# Who may not read the source may not read it through a run.
	chmod 600 "$WORK/src/class000/img000000.png"
	as_user "$CLAIRFS" run "$WORK/src" -o $o --quiet -- cat "$WORK/src/class000/img000000.png" \
		>/dev/null 2>&1 && fail "a file that the user may not read was read"
	chmod 640 "$WORK/src/class000/img000000.png"
else
	as_user "$CLAIRFS" run "$WORK/src" -o $o -- true 2>"$WORK/err" && fail "ran without namespaces"
	[ "$(wc -l <"$WORK/err")" = 1 ] || fail "not one line: $(cat "$WORK/err")"
fi
if command -v fusermount3 >/dev/null && [ -u "$(command -v fusermount3)" ]; then
	mkdir "$WORK/home/mnt" && chown "$user" "$WORK/home/mnt"
	as_user "$CLAIRFS" mount "$WORK/src" "$WORK/home/mnt" -o $o </dev/null >>"$LOG" 2>&1 ||
		fail "mount as an ordinary user gave $?"
	MOUNTED+=("$WORK/home/mnt")
	as_user "$LIB/reader" "$WORK/home/mnt" "$WORK/order" >"$WORK/reader.out" || fail "the user's mount"
	[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "user's mount: not the source's bytes"
	as_user "$CLAIRFS" umount "$WORK/home/mnt" 2>>"$LOG" || fail "umount as an ordinary user"
	mountpoint -q "$WORK/home/mnt" && fail "the user's mount is still there"
	# Over the source itself where it may be written; else one line names what can be done.
	as_user cp -r "$WORK/src" "$WORK/home/own" || fail "a source of the user's own"
	as_user chmod -R u+w "$WORK/home/own"
	as_user "$CLAIRFS" mount "$WORK/home/own" -o $o </dev/null >>"$LOG" 2>&1 || fail "over the own source: mount gave $?"
	MOUNTED+=("$WORK/home/own")
	as_user "$LIB/reader" "$WORK/home/own" "$WORK/order" >"$WORK/reader.out" || fail "over the own source"
	[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "over the own source: not its bytes"
	as_user "$CLAIRFS" umount "$WORK/home/own" 2>>"$LOG" || fail "umount over the own source"
	[ -f "$WORK/home/own/class001/img000001.png" ] || fail "the source is not there after umount"
	as_user "$CLAIRFS" mount "$WORK/src" -o $o </dev/null 2>"$WORK/err"
	[ $? = 2 ] && [ "$(wc -l <"$WORK/err")" = 1 ] && grep -q 'clairfs run' "$WORK/err" ||
		fail "over a source that may not be written: $(cat "$WORK/err")"
fi
# As root, `su` inside of a run.
within 60 "$CLAIRFS" run "$WORK/src" -o $o --quiet -- runuser -u "$user" -- \
	cat "$WORK/src/class001/img000001.png" 2>>"$WORK/run.log" | cmp - "$WORK/src/class001/img000001.png" ||
	fail "another user within root's run"
exit 0
