#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Who gives up while a slow source is listed gets no mount later, and no process is left.
. "$(dirname "$0")/../lib/mount.sh"
mkdir "$WORK/src" "$WORK/mnt"
dataset "$WORK/src" 200 100 40 5
slow_start "$WORK/src" "$WORK/pfs" cache=0
slow fault hang:4000 op=readdir "path=*" >/dev/null || fail "no such fault"
none_left() { ! pgrep -f "clairfs (run|mount) $WORK/pfs" >/dev/null; }
for verb in mount run; do
	if [ $verb = mount ]; then
		"$CLAIRFS" mount "$WORK/pfs" "$WORK/mnt" </dev/null >>"$LOG" 2>&1 &
	else
		"$CLAIRFS" run "$WORK/pfs" --quiet -- true </dev/null >>"$LOG" 2>&1 &
	fi
	starter=$!
	started $starter
	two() { [ "$(pgrep -cf "clairfs $verb $WORK/pfs")" -ge 2 ]; }
	wait_for 30 two || fail "$verb: no daemon"
	kill -TERM $starter
	wait $starter 2>/dev/null
	wait_for 30 none_left || fail "$verb: $(pgrep -af "clairfs $verb $WORK/pfs")"
	grep -q 'fuse.clairfs' <(grep " $WORK/" /proc/self/mounts) && fail "$verb: mounted after all"
done
exit 0
