#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `mpirun clairfs run`: each command has a private mount, all are one cache; a node whose command ended
# goes on giving; a command that fails ends its part at once; MPI_Init in the command is refused with a
# line, and an mpirun of its own works; SIGTERM and SIGKILL of mpirun leave nothing.
. "$(dirname "$0")/../lib/mount.sh"
MPIRUN="mpirun --oversubscribe --mca btl tcp,self --mca btl_tcp_if_include lo"
. "$TOP/tests/lib/job.sh"
opt=seed=42,sampler=torch-distributed,index=imagefolder,world=2,ram=200M,staging=32M
mkdir "$WORK/data"
dataset "$WORK/data" 600 40000 10 1
bytes=$(find "$WORK/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
job_orders 2 "$WORK/data" "seed=42,sampler=torch-distributed,index=imagefolder" 0 1
slow_start "$WORK/data" "$WORK/pfs" latency=300

run_job() { # COMMAND…: the command line of each node; $k is its number
	cat >"$WORK/run.sh" <<-XX
		k=\$OMPI_COMM_WORLD_RANK
		exec "$CLAIRFS" run "$WORK/pfs" -o $opt --report "$WORK/report.\$k" --quiet -- $*
	XX
	within 100 $MPIRUN -n 2 bash "$WORK/run.sh" </dev/null >"$WORK/out" 2>"$WORK/mpirun.log"
}
quiet() { ! pgrep -f "$WORK/pfs -o" >/dev/null; }

say "two commands, one cache"
run_job sh -c "'sleep \$OMPI_COMM_WORLD_RANK; exec $LIB/reader $WORK/pfs $WORK/order.\$OMPI_COMM_WORLD_RANK --threads 2 >$WORK/got.\$OMPI_COMM_WORLD_RANK'" ||
	fail "gave $?: $(cat "$WORK/mpirun.log")"
job_same 0
job_same 1
sum=$(jq -s '[.[].reads.pfs.bytes] | add' "$WORK/report.0" "$WORK/report.1")
[ "$sum" = "$bytes" ] || fail "$sum bytes from the source, not $bytes"
[ "$(jq -s '[.[].pfs.walks] | add' "$WORK/report.0" "$WORK/report.1")" = 1 ] || fail "more than one walk"
[ "$(jq '.reads.peer.bytes' "$WORK/report.0")" -gt 0 ] || fail "node 0 got nothing from node 1"
wait_for 10 quiet || fail "processes are left: $(pgrep -af "$WORK/pfs")"

say "a command that fails"
run_job sh -c "'[ \$OMPI_COMM_WORLD_RANK = 0 ] && exit 3; sleep 60'" && fail "the status is lost"
wait_for 15 quiet || fail "processes are left: $(pgrep -af "$WORK/pfs")"

if command -v mpicc >/dev/null; then
	say "MPI_Init in the command"
	cat >"$WORK/hello.c" <<-'XX'
		#include <mpi.h>
		#include <stdio.h>
		int main(int argc, char **argv)
		{
			int n;
			MPI_Init(&argc, &argv);
			MPI_Comm_size(MPI_COMM_WORLD, &n);
			printf("size %d\n", n);
			return MPI_Finalize();
		}
	XX
	mpicc -o "$WORK/hello" "$WORK/hello.c" || fail "mpicc"
	run_job "$WORK/hello" && fail "MPI_Init was let through: $(cat "$WORK/out")"
	grep -q 'clairfs: MPI_Init: .*clairfs mount' "$WORK/mpirun.log" || fail "no line: $(cat "$WORK/mpirun.log")"
	run_job mpirun --oversubscribe -n 3 "$WORK/hello" || fail "an mpirun of the command's own: $(cat "$WORK/mpirun.log")"
	[ "$(grep -c 'size 3' "$WORK/out")" = 6 ] || fail "its sizes: $(cat "$WORK/out")"
fi

for signal in TERM KILL; do
	say "SIG$signal of mpirun"
	cat >"$WORK/run.sh" <<-XX
		exec "$CLAIRFS" run "$WORK/pfs" -o $opt --quiet -- sh -c "echo \$\$ >$WORK/sleeper.\$OMPI_COMM_WORLD_RANK; exec sleep 100"
	XX
	rm -f "$WORK"/sleeper.*
	$MPIRUN -n 2 bash "$WORK/run.sh" </dev/null >"$WORK/out" 2>"$WORK/mpirun.log" &
	pid=$!
	started $pid
	wait_for 30 test -s "$WORK/sleeper.0" -a -s "$WORK/sleeper.1" || fail "the commands do not begin"
	kill -$signal $pid
	for k in 0 1; do wait_for 15 gone "$(cat "$WORK/sleeper.$k")" || fail "command $k goes on after SIG$signal"; done
	wait_for 15 quiet || fail "processes are left: $(pgrep -af "$WORK/pfs")"
done
