#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The cluster of namespaces itself, and the peer processes on it: host names, shaped links, a
# link that goes down, a node that is killed.
# shellcheck source=tests/lib/mount.sh
. "$(dirname "$0")/../lib/mount.sh"
# shellcheck source=tests/lib/cluster.sh
. "$TOP/tests/lib/cluster.sh"

PEER=$BUILD/tools/clairfs-peer
TEST=$BUILD/tests/mpi/test_link
[ -x "$PEER" ] && [ -x "$TEST" ] || skip "built without MPI"
cluster_start 4 200mbit

OUT=$WORK/job.out
begin() { # ARGUMENT…: in the background
	: >"$OUT"
	cluster_mpirun -- "$TEST" "$PEER" "$@" >"$OUT" 2>&1 </dev/null &
	JOB=$!
}
saw() { grep -qE "$1" "$OUT"; }
seen() { wait_for 60 saw "$1" || { tail -n 30 "$OUT"; fail "no line like $1"; }; }
report() { say "--- $1"; grep -E '^(FAIL|node|wake-up|clairfs-peer)' "$OUT"; }

# NAME NODE COMMAND…: COMMAND takes NODE away in the middle; the others go on without it. A line
# with messages comes when a node is through.
lose() {
	local name=$1 gone=$2 node; shift 2
	begin --messages 2000 --pace 500 --lost "$gone"
	seen '^node 0: begins'
	sleep 1
	"$@"
	for node in 0 1 2 3; do
		[ "$node" = "$gone" ] || seen "^node $node: [0-9]+ messages"
	done
	report "$name"
	saw "^FAIL: node [^$gone]" && fail "$name cost others"
	cluster_end KILL 5 # whose node was cut off does not hear of it
	wait $JOB
}

# SIGNAL WORD: what the mount processes learn when mpirun ends so.
end_by() {
	local node
	rm -f "$WORK"/end.*
	begin --messages 10 --until-end "$WORK/end"
	for node in 0 1 2 3; do seen "^node $node: waits"; done
	cluster_end "$1" || fail "mpirun ended by $1 left processes"
	wait $JOB
	for node in 0 1 2 3; do
		[ "$(cat "$WORK/end.$node")" = "$2" ] ||
			fail "mpirun ended by $1: node $node learnt $(cat "$WORK/end.$node")"
	done
}

[ "$(on 2 hostname)" = node2 ] || fail "the host name of node 2 is $(on 2 hostname)"
on 1 mount -t tmpfs none /mnt || fail "mount on node 1"
on 1 mountpoint -q /mnt || fail "node 1 has no mount of its own"
mountpoint -q /mnt && fail "the mount of node 1 is everybody's"
cluster_mpirun -- hostname >"$WORK/names" 2>"$WORK/names.log" </dev/null || fail "mpirun hostname: $(cat "$WORK/names.log")"
[ "$(sort "$WORK/names" | tr '\n' ' ')" = "node0 node1 node2 node3 " ] || fail "ranks on $(cat "$WORK/names")"

begin --messages 300 --bulk 10000000 --idle 3
wait $JOB || { report shaped; fail "shaped links"; }
for node in 0 1 2 3; do seen "^node $node: .* 0 dead"; done
report "shaped links"
lose "link down" 3 cluster_link 3 down
cluster_link 3 up
lose "node killed" 2 cluster_kill 2
cluster_link 2 up
end_by TERM end
end_by KILL gone
exit 0
