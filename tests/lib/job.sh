# SPDX-License-Identifier: BSD-3-Clause
# Sourced after mount.sh: several mounts of one job on this machine, under mpirun, each with its own
# mount point $WORK/m0, $WORK/m1, … Gives:
#   job_start NODES SOURCE [OPTIONS…]   job_pids NODE (mount process)   job_peer NODE (peer process)
#   job_orders NODES SOURCE OPTIONS FIRST LAST   $WORK/order.NODE: the files of rank NODE
#   job_read NODES [reader's options]   in parallel; the bytes are compared with the source's
command -v mpirun >/dev/null || skip "no mpirun"
[ -x "$BUILD/tools/clairfs-peer" ] || skip "built without MPI"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
MPIRUN=${MPIRUN:-mpirun --oversubscribe --enable-recovery --mca btl tcp,self --mca btl_tcp_if_include lo}

job_start() {
	local nodes=$1 source=$2 k; shift 2
	for ((k = 0; k < nodes; k++)); do mkdir -p "$WORK/m$k"; done
	cat >"$WORK/node.sh" <<-XX
		k=\$OMPI_COMM_WORLD_RANK
		extra=\$(cat "$WORK/options.\$k" 2>/dev/null)
		exec "$CLAIRFS" mount "$source" "$WORK/m\$k" $(printf "'%s' " "$@") -o "log=info:$WORK/node\$k.log\$extra"
	XX
	$MPIRUN -n "$nodes" bash "$WORK/node.sh" </dev/null >"$WORK/mpirun.log" 2>&1 &
	MPIRUN_PID=$!
	started $MPIRUN_PID
	for ((k = 0; k < nodes; k++)); do
		wait_for 60 mountpoint -q "$WORK/m$k" || fail "node $k is not mounted: $(cat "$WORK/mpirun.log")"
		MOUNTED+=("$WORK/m$k")
	done
	for ((k = 0; k < nodes; k++)); do
		wait_for 30 status "$WORK/m$k" .node || fail "node $k has no status"
	done
}

job_pid() { daemon_pid "$WORK/m$1"; }
# The peer process is the sibling of the mount process: a child of what mpirun started.
job_peer() {
	local parent
	parent=$(awk '/^PPid/ { print $2 }' "/proc/$(job_pid "$1")/status")
	grep -lx clairfs-peer $(for c in $(cat "/proc/$parent/task/$parent/children"); do echo "/proc/$c/comm"; done) |
		head -n 1 | cut -d/ -f3
}

job_orders() {
	local nodes=$1 source=$2 options=$3 first=$4 last=$5 k e
	for ((k = 0; k < nodes; k++)); do
		for ((e = first; e <= last; e++)); do
			within 60 "$CLAIRFS" order "$source" -o "$options,world=$nodes" --epoch "$e" --rank "$k" --paths || fail "order"
			echo
		done >"$WORK/order.$k"
		"$LIB/reader" "$source" "$WORK/order.$k" >"$WORK/want.$k" || fail "the source cannot be read"
	done
}

# One after the other epochs, all nodes at once; readers' errors and other bytes than the source's fail.
job_read() {
	local nodes=$1 k pids=(); shift
	for ((k = 0; k < nodes; k++)); do
		[ -e "$WORK/dead.$k" ] && continue
		within 120 "$LIB/reader" "$WORK/m$k" "$WORK/order.$k" "$@" >"$WORK/got.$k" 2>"$WORK/reader.$k" &
		pids[k]=$!
	done
	for k in "${!pids[@]}"; do
		wait "${pids[k]}" || [ -e "$WORK/dead.$k" ] || fail "the reader of node $k failed: $(tail -n 2 "$WORK/reader.$k")"
		[ -e "$WORK/dead.$k" ] || job_same "$k"
	done
}
job_same() {
	[ "$(jq -c '[.files, .errors, .hash]' "$WORK/want.$1")" = "$(jq -c '[.files, .errors, .hash]' "$WORK/got.$1")" ] ||
		fail "node $1 read other bytes than the source has"
}
# The sum of a number over all nodes: job_sum NODES FILTER
job_sum() {
	local k sum=0
	for ((k = 0; k < $1; k++)); do
		[ -e "$WORK/dead.$k" ] || sum=$((sum + $(status "$WORK/m$k" "$2")))
	done
	echo $sum
}
