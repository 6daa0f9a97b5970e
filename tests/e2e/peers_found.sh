#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# No seed is given to three mounts of one job: who finds the order tells the others, and the epochs
# after it are predicted on all; homes are known all the time, so each file leaves the source once.
. "$(dirname "$0")/../lib/mount.sh"
. "$TOP/tests/lib/job.sh"
export XDG_CACHE_HOME=$WORK/xdg
mkdir "$WORK/data" "$XDG_CACHE_HOME"
dataset "$WORK/data" 3000 20000 10 1
bytes=$(find "$WORK/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
job_orders 3 "$WORK/data" seed=42,sampler=torch-distributed,index=imagefolder 0 2
slow_start "$WORK/data" "$WORK/pfs" latency=300
job_start 3 "$WORK/pfs" -o "ram=400M,staging=32M,discover-threads=1"

pids=()
for k in 0 1 2; do
	RANK=$k WORLD_SIZE=3 within 120 "$LIB/reader" "$WORK/m$k" "$WORK/order.$k" --compute-us 2000 >"$WORK/got.$k" &
	pids+=($!)
	# The last one begins when the others know it.
	[ $k = 1 ] && { wait_for 60 status_is "$WORK/m1" .streams[0].order.seed -eq 42 || fail "not found"
		wait_for 20 grep -q 'another node found' "$WORK/node2.log" || fail "node 2 was not told"; }
done
wait "${pids[@]}"
for k in 0 1 2; do
	job_same $k
	status_is "$WORK/m$k" .streams[0].order.seed -eq 42 || fail "node $k does not know the seed: $(status "$WORK/m$k" '.discovery|tostring')"
	status_is "$WORK/m$k" '[.streams[0].epochs[] | select(.epoch >= 1) | .staged] | add' -ge 1980 ||
		fail "node $k: $(status "$WORK/m$k" '.streams[0].epochs|tostring')"
done
[ "$(job_sum 3 .reads.pfs.bytes)" -le $((bytes * 101 / 100)) ] || fail "read $(job_sum 3 .reads.pfs.bytes) bytes of $bytes"
within 30 "$CLAIRFS" umount "$WORK/m0" || fail "umount gave $?"
wait_for 20 gone $MPIRUN_PID || fail "mpirun goes on after the umount"
