# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the end-to-end scripts (bash). Gives:
#   $BUILD (from CLAIRFS_BUILD, else build/), $CLAIRFS, $WORK (a temporary folder), $TOP
#   mount_clairfs SOURCE MOUNTPOINT [-o …]   umount_clean MOUNTPOINT
#   slow_start SOURCE MOUNTPOINT [KEY=VALUE…]   slow WORD…   slow_stop
#   status MOUNTPOINT FILTER (jq on status --json)   json FILE FILTER
#   wait_for SECONDS COMMAND…   want DESCRIPTION COMMAND…   fail TEXT   skip TEXT
# What a test started and mounted is ended and unmounted when the script ends.
set -u
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=${CLAIRFS_BUILD:-$TOP/build}
CLAIRFS=$BUILD/tools/clairfs
LIB=$BUILD/tests/lib
export CLAIRFS_BUILD=$BUILD PATH=$PATH:/usr/sbin:/sbin LC_ALL=C.UTF-8
WORK=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-test.XXXXXX")
export XDG_RUNTIME_DIR=$WORK/runtime
mkdir -m 700 "$XDG_RUNTIME_DIR"
export XDG_CACHE_HOME=$WORK/xdg-cache # nothing is remembered from test to test
chmod 755 "$WORK"
LOG=$WORK/daemon.log
STARTED=()   # process ids
MOUNTED=()   # mount points, the newest last
ME=$BASHPID

say() { printf '%s\n' "$*"; }
fail() { say "FAIL: $*" >&2; exit 1; }
skip() { say "SKIP: $*"; exit 77; }

# Runs a command with a deadline that nothing survives.
within() { timeout -k 5 "$@"; }

wait_for() {
	local end=$((SECONDS + $1)); shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || return 1
		sleep 0.05
	done
}

want() {
	local what=$1; shift
	"$@" || fail "$what (${*:0:6})"
}

json() { jq -r "$2" "$1"; }
status() { within 30 "$CLAIRFS" status "$1" --json | jq -r "$2"; }
# True when the number that FILTER gives is as told: status_is MNT FILTER -ge 10
status_is() { local v; v=$(status "$1" "$2") && [ -n "$v" ] && [ "$v" "$3" "$4" ]; }

list_of() { (cd "$1" && find . -type f -printf '%P\n' | LC_ALL=C sort); }

# A process id that the end of the script kills.
started() { STARTED+=("$1"); }

mount_clairfs() {
	local source=$1 at=$2; shift 2
	mkdir -p "$at" 2>/dev/null
	# The daemon keeps no descriptor of ours open but the log.
	within 60 "$CLAIRFS" mount "$source" "$at" "$@" </dev/null >>"$LOG" 2>&1
	local code=$?
	[ $code = 0 ] || fail "mount $source $at $* gave $code"
	mountpoint -q "$at" || fail "mount returned, but $at is no mount point"
	MOUNTED+=("$at")
}

umount_clean() {
	within 30 "$CLAIRFS" umount "$1" 2>>"$LOG" || fail "umount $1 gave $?"
	mountpoint -q "$1" && fail "$1 is still mounted"
	local keep=() m
	for m in "${MOUNTED[@]}"; do [ "$m" = "$1" ] || keep+=("$m"); done
	MOUNTED=("${keep[@]}")
	return 0
}

daemon_pid() { status "$1" .process.pid; }
# The leader may be a zombie while other threads of it still end.
gone() {
	local tasks=(/proc/"$1"/task/*)
	! kill -0 "$1" 2>/dev/null ||
		{ [ ${#tasks[@]} -le 1 ] && grep -q '^State:.[ZX]' "/proc/$1/status" 2>/dev/null; }
}

slow_start() {
	local source=$1 at=$2; shift 2
	mkdir -p "$at"
	"$LIB/slowfs" "$source" "$at" --control "$WORK/slow.ctl" "$@" >>"$WORK/slow.log" 2>&1 </dev/null &
	SLOW_PID=$!
	started $SLOW_PID
	MOUNTED+=("$at")
	wait_for 20 mountpoint -q "$at" || fail "slowfs: $(cat "$WORK/slow.log")"
	wait_for 20 test -S "$WORK/slow.ctl" || fail "slowfs has no control socket"
}
slow() { within 20 "$LIB/slowfs" --ask "$WORK/slow.ctl" "$@"; }
slow_count() { slow stats | jq -r ".$1"; }
slow_stop() { kill "$SLOW_PID" 2>/dev/null; wait "$SLOW_PID" 2>/dev/null; }

dataset() { "$LIB/mkdataset" "$@" || fail "mkdataset $*"; }

# Reads with a deadline; prints the JSON lines and keeps them in $WORK/reader.out.
reader() { within 120 "$LIB/reader" "$@" | tee "$WORK/reader.out"; return "${PIPESTATUS[0]}"; }
loader() { within 120 "$LIB/loader_model" "$@" | tee "$WORK/reader.out"; return "${PIPESTATUS[0]}"; }
read_sum() { jq -s "[.[].$1] | add" "$WORK/reader.out"; }

# The orders of epochs FIRST…LAST of rank 0, as paths, an empty line between: for LIST.
orders() {
	local source=$1 options=$2 e
	for ((e = $3; e <= $4; e++)); do
		within 60 "$CLAIRFS" order "$source" -o "$options" --epoch "$e" --paths || fail "order"
		echo
	done
}

# A user for tests, without a password: prints the name. Skips when it cannot be.
test_user() {
	[ "$(id -u)" = 0 ] || skip "needs root to become another user"
	id clairtest >/dev/null 2>&1 || useradd -M -s /bin/bash clairtest 2>/dev/null || skip "no useradd"
	[ -r /dev/fuse ] && chmod 666 /dev/fuse
	echo clairtest
}

suspicious='ERROR: .*Sanitizer|runtime error:|[Aa]ssertion|LeakSanitizer|double free|corrupted|[^a-z]bug[^a-z]'

cleanup() {
	local code=$? i pid
	[ $BASHPID = "$ME" ] || return
	trap - EXIT
	for ((i = ${#MOUNTED[@]} - 1; i >= 0; i--)); do
		umount "${MOUNTED[i]}" 2>/dev/null || umount -l "${MOUNTED[i]}" 2>/dev/null
	done
	for pid in "${STARTED[@]}"; do
		kill "$pid" 2>/dev/null && wait_for 3 gone "$pid" || kill -9 "$pid" 2>/dev/null
	done
	if [ $code = 0 ] && grep -qE "$suspicious" "$WORK"/*.log 2>/dev/null; then
		say "FAIL: suspicious words in the logs" >&2
		code=1
	fi
	if [ $code != 0 ] && [ $code != 77 ]; then
		for i in "$WORK"/*.log; do
			[ -s "$i" ] && { say "--- ${i##*/}"; tail -n 20 "$i"; } >&2
		done
	fi
	rm -rf --one-file-system "$WORK" 2>/dev/null
	exit $code
}
trap cleanup EXIT
trap 'exit 130' INT TERM

command -v jq >/dev/null || skip "jq is not installed"
[ -x "$CLAIRFS" ] || fail "$CLAIRFS is not there; set CLAIRFS_BUILD"
