#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The peer processes of a job on one machine: messages in order and whole, landings, bulks,
# garbage, deaths, rest. What mpirun starts is a stand-in for the mount process.
# shellcheck source=tests/lib/mount.sh
. "$(dirname "$0")/../lib/mount.sh"

PEER=$BUILD/tools/clairfs-peer
TEST=$BUILD/tests/mpi/test_link
ROGUE=$BUILD/tests/mpi/rogue
command -v mpirun >/dev/null || skip "mpirun is not installed"
[ -x "$PEER" ] && [ -x "$TEST" ] || skip "built without MPI"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$WORK
MPIRUN=(mpirun --oversubscribe --enable-recovery --mca btl_tcp_if_include lo)
ip link set lo up 2>/dev/null

job() { # NAME BTL N ARGUMENT…
	local name=$1 btl=$2 n=$3; shift 3
	within 100 "${MPIRUN[@]}" --mca btl "$btl" -n "$n" "$TEST" "$PEER" "$@" \
		>"$WORK/job.out" 2>&1 </dev/null
	local code=$?
	say "--- $name: $code"
	grep -E '^(FAIL|node|wake-up|clairfs-peer)' "$WORK/job.out"
	[ $code = 0 ] || { tail -n 30 "$WORK/job.out"; fail "$name: mpirun gave $code"; }
	grep -q '^FAIL' "$WORK/job.out" && fail "$name"
	return 0
}
seen() { grep -qE "$1" "$WORK/job.out" || fail "no line like $1"; }

job two tcp,self 2 --messages 5000 --garbage --bulk 50000000
job four vader,self 4 --messages 1700 --garbage --bulk 50000000
job rest tcp,self 2 --messages 10 --idle 5
seen '^wake-up'
job "mount process killed" tcp,self 3 --messages 2000 --kill-mount 2 --bulk 5000000
seen '^node 0: .* messages'
seen '^node 1: .* messages'
job "peer process killed" tcp,self 4 --messages 2000 --kill-peer 2 --bulk 5000000
for node in 0 1 3; do seen "^node $node: .* messages"; done
job "garbage from a node" tcp,self 2 --messages 1500 --pace 300 --rogue 2 : -n 1 "$ROGUE" 4
for node in 0 1; do seen "^node $node: .* messages"; done
exit 0
