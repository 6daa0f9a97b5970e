#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Three mounts of one job as one cache: every byte leaves the source once, all nodes see the same
# bytes, `umount` anywhere ends them all; a killed peer process or mount process costs the others
# nothing but its share.
. "$(dirname "$0")/../lib/mount.sh"
. "$TOP/tests/lib/job.sh"
opt=seed=42,sampler=torch-distributed,index=imagefolder
mkdir "$WORK/data"
dataset "$WORK/data" 900 40000 10 1
bytes=$(find "$WORK/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
job_orders 3 "$WORK/data" $opt 0 2
slow_start "$WORK/data" "$WORK/pfs" latency=300

begin() {
	rm -f "$WORK"/dead.*
	job_start 3 "$WORK/pfs" -o "$opt,world=3" -o "ram=${1:-200M},staging=32M"
}
finish() {
	within 30 "$CLAIRFS" umount "$WORK/m${1:-1}" || fail "umount gave $?"
	wait_for 20 gone $MPIRUN_PID || fail "mpirun goes on after the umount"
	for k in 0 1 2; do mountpoint -q "$WORK/m$k" && fail "m$k is still mounted"; done
	return 0
}

say "all fits: once from the source"
begin
job_read 3
[ "$(job_sum 3 .reads.pfs.bytes)" = "$bytes" ] || fail "read $(job_sum 3 .reads.pfs.bytes) bytes of $bytes: $(for k in 0 1 2; do status $WORK/m$k ".peers|tostring"; status $WORK/m$k ".errors,.pfs|tostring"; done)"
[ "$(job_sum 3 .pfs.opens)" = 900 ] || fail "$(job_sum 3 .pfs.opens) opens"
[ "$(job_sum 3 .pfs.walks)" = 1 ] || fail "$(job_sum 3 .pfs.walks) walks"
[ "$(job_sum 3 .errors.peer)" = 0 ] || fail "peers' errors"
status_is "$WORK/m0" '.peers | length' = 2 || fail "no peers in the status"
status_is "$WORK/m0" '.pfs_bound_bytes' = "$bytes" || fail "the bound is not the job's"
within 30 "$CLAIRFS" status "$WORK/m2" --job --json | jq -e ".job.pfs_bytes == $bytes and (.job.nodes | length) == 3" >/dev/null ||
	fail "status --job"
finish 1

say "a peer process is killed"
begin
(sleep 0.15; kill -9 "$(job_peer 2)") &
job_read 3
wait $!
[ "$(job_sum 3 .errors.reader)" = 0 ] || fail "readers saw errors"
wait_for 10 status_is "$WORK/m0" '[.peers[] | select(.state == "down")] | length' = 1 || fail "node 0 does not know"
for k in 0 1 2; do within 30 "$CLAIRFS" umount "$WORK/m$k" 2>/dev/null; done
wait_for 20 gone $MPIRUN_PID || fail "mpirun goes on"

say "a mount process is killed"
begin
pid=$(job_pid 1)
(sleep 0.15; : >"$WORK/dead.1"; kill -9 "$pid") &
job_read 3
wait $!
umount -l "$WORK/m1" 2>/dev/null
[ "$(job_sum 3 .errors.reader)" = 0 ] || fail "readers saw errors"
wait_for 10 status_is "$WORK/m0" '[.peers[] | select(.state == "down")] | length' = 1 || fail "node 0 does not know"
rm "$WORK/dead.1"
finish 0

say "settings that differ"
echo ,seed=7 >"$WORK/options.2"
begin
job_read 3 # rank 2 reads another order than node 2 thinks
wait_for 10 status_is "$WORK/m0" '[.peers[] | select(.state == "down")] | length' = 1 || fail "node 2 is not left out"
grep -q 'its settings' "$WORK/node0.log" || fail "nobody says what differs: $(cat "$WORK/node0.log")"
grep -q 'differs from node 0' "$WORK/node2.log" || fail "node 2 does not say it"
finish 0

say "several on one node over the source itself"
MPIRUN="mpirun --oversubscribe" && $MPIRUN -n 2 "$CLAIRFS" mount "$WORK/pfs" </dev/null >"$WORK/out" 2>&1 && fail "it was let through"
grep -q 'one a node is right' "$WORK/out" || fail "no line: $(cat "$WORK/out")"
