#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/mpi_job.sh DATA [PROGRAM…]: an MPI program over mounts that are an MPI job of their own, one a
# node. Without a PROGRAM examples/mpi_read.py (mpi4py) reads DATA in DistributedSampler's order. Under
# Slurm the hosts come from the allocation, else from MPIRUN (`MPIRUN="mpirun -H a,b"`).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
data=${1:?give the folder of the data set}
shift
[ $# -gt 0 ] || set -- /usr/bin/python3 "$here/mpi_read.py" "$data" --seed "${SEED:-42}"
clairfs=${CLAIRFS:-clairfs}
mpirun=${MPIRUN:-mpirun}

# One mount a node; it stays in the foreground until it is unmounted.
$mpirun -N 1 "$clairfs" mount "$data" -o "seed=${SEED:-42},sampler=torch-distributed,${OPTIONS:-log=warning}" &
job=$!
trap '"$clairfs" umount "$data" 2>/dev/null; wait $job' EXIT
until "$clairfs" status "$data" --wait >/dev/null 2>&1; do
	kill -0 $job 2>/dev/null || exit 1
	sleep 0.1
done

$mpirun "$@"
"$clairfs" status "$data" --job
