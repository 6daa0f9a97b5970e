#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# SIGTERM of a mount's daemon; SIGKILL of it and of each process of a run: nothing hangs, nothing
# stays, and the next mount works.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 400 30000 4 6
slow_start "$WORK/src" "$WORK/pfs" latency=500 cache=60 bandwidth=40M
o=seed=3,sampler=torch-distributed,ram=64M
list_of "$WORK/src" >"$WORK/list"

mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
pid=$(daemon_pid "$WORK/mnt")
kill -TERM "$pid"
wait_for 10 gone "$pid" || fail "SIGTERM: the daemon is still there"
not_mounted() { ! mountpoint -q "$WORK/mnt"; }
wait_for 5 not_mounted || fail "SIGTERM: still mounted"

mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
pid=$(daemon_pid "$WORK/mnt")
kill -KILL "$pid"
wait_for 10 gone "$pid" || fail "SIGKILL: the daemon is still there"
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o $o
reader "$WORK/mnt" "$WORK/list" --limit 50 >/dev/null || fail "the mount after a killed daemon"
umount_clean "$WORK/mnt"

tree() { # process ids of a run: the run, its descendants, its daemon
	pgrep -f "clairfs (run|mount) $WORK/pfs" | grep -vx $$
}
none_left() { [ -z "$(tree)" ]; }
for victim in 1 2 3 4 5; do
	rm -f "$WORK/begun"
	"$CLAIRFS" run "$WORK/pfs" -o $o --quiet -- bash -c "touch '$WORK/begun'
		for i in \$(seq 5); do '$LIB/reader' '$WORK/pfs' '$WORK/list' --limit 40 || exit 9; done" \
		</dev/null >"$WORK/reader.log" 2>>"$WORK/run.log" &
	run=$!
	started $run
	wait_for 30 test -e "$WORK/begun" || fail "the run did not begin"
	pid=$(tree | sed -n ${victim}p)
	[ -n "$pid" ] || { wait $run; break; }
	what=$(tr '\0' ' ' <"/proc/$pid/cmdline" | cut -c1-60)
	kill -KILL "$pid"
	wait_for 60 gone $run || fail "after SIGKILL of process $victim ($what) the run hangs"
	wait $run
	code=$?
	say "killed $victim ($what): status $code"
	wait_for 30 none_left || fail "left after SIGKILL of $victim ($what): $(pgrep -af "clairfs (run|mount) $WORK/pfs")"
	grep -q " $WORK/pfs fuse.clairfs" /proc/self/mounts && fail "a mount is left"
	within 60 "$CLAIRFS" run "$WORK/pfs" -o $o --quiet -- "$LIB/reader" "$WORK/pfs" "$WORK/list" \
		--limit 50 >/dev/null 2>>"$WORK/run.log" || fail "the run after SIGKILL of $victim"
done
[ $victim -gt 2 ] || fail "found only $victim processes"
