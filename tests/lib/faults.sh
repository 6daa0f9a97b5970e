# SPDX-License-Identifier: BSD-3-Clause
# Sourced after mount.sh and cluster.sh: a job on four nodes, to which something happens while it
# reads. Node 3 is the victim.
#   faults_begin [FILES]       the dataset, its slow source, the cluster
#   fault NAME [KEY=VALUE…]    one run; what is wrong is told, and counted in $FAULTS_WRONG
#     do=FUNCTION              what happens (job_pid, job_peer: whom to kill)
#     at=SECONDS               after the readers began; random when not given
#     lost=0|1                 whether node 3's reader is lost with it
#     down=0|1                 whether the others must say that node 3 is down, in the end
#     back=1                   node 3 must be up again, in the end
#     alone=1                  all are to lose their peers: each is unmounted by itself
#     end=SIGNAL               mpirun does not end by itself: it is ended so
#     options=…                mount options of node 3 (a word that begins with a comma)
#     start=SECONDS            that the mounts may take
#     more=PERCENT|any         of the dataset: what the source may give beyond what was lost
#   $FAULTS_ALLOWED (ms): a longer stall is wrong
#   $FAULTS_ROW: errors, nodes with wrong bytes, stall of the slowest node (ms), per mille of D
FAULT_NODES=4
FAULT_EPOCHS=3
FAULT_US=${FAULT_US:-4000} # a sample's computing
FAULTS_WRONG=0
FAULTS_ALLOWED=${FAULTS_ALLOWED:-1000000}
fault_opt=seed=42,sampler=torch-distributed,index=imagefolder,world=$FAULT_NODES,epochs=$FAULT_EPOCHS
MNT=$WORK/mnt

wrong() { say "  WRONG: $*"; FAULTS_WRONG=$((FAULTS_WRONG + 1)); }

faults_begin() {
	local k e
	[ -x "$BUILD/tools/clairfs-peer" ] || skip "built without MPI"
	mkdir "$WORK/data" "$MNT"
	dataset "$WORK/data" "${1:-800}" 40000 10 1
	FAULT_D=$(find "$WORK/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
	for ((k = 0; k < FAULT_NODES; k++)); do
		for ((e = 0; e < FAULT_EPOCHS; e++)); do
			within 60 "$CLAIRFS" order "$WORK/data" -o "$fault_opt" --epoch $e --rank $k --paths || fail "order"
			echo
		done >"$WORK/order.$k"
		"$LIB/reader" "$WORK/data" "$WORK/order.$k" >"$WORK/want.$k" || fail "the source cannot be read"
	done
	slow_start "$WORK/data" "$WORK/pfs" latency=500
	cluster_start $FAULT_NODES
}

node_status() { on "$1" timeout 30 "$CLAIRFS" status "$MNT" --json | jq -r "$2"; }
node_is() { [ "$(node_status "$1" "$2" 2>/dev/null)" = "$3" ]; }
mounted() { on "$1" mountpoint -q "$MNT"; }
unmounted() { ! mounted "$1"; }
job_pid() { node_status "$1" .process.pid; }
# The peer process is the only one of its name on the node.
job_peer() {
	local pid
	for pid in $(cluster_processes "${CLUSTER_PIDS[$1]}"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = clairfs-peer ] && echo "$pid" && return
	done
}

job_start() { # OPTIONS of node 3
	local k
	cat >"$WORK/node.sh" <<-XX
		k=\$OMPI_COMM_WORLD_RANK
		[ \$k = 3 ] && more='$1' || more=
		exec "\$(cat "$WORK/program.\$k" 2>/dev/null || echo "$CLAIRFS")" mount "$WORK/pfs" "$MNT" \
			-o "$fault_opt,ram=20M,staging=16M\$more,log=info:$WORK/node\$k.log"
	XX
	CLUSTER_LIMIT=170 cluster_mpirun -- bash "$WORK/node.sh" </dev/null >"$WORK/mpirun.log" 2>&1 &
	JOB=$!
	for ((k = 0; k < FAULT_NODES; k++)); do
		wait_for "$start" mounted $k || fail "node $k is not mounted: $(tail -n 5 "$WORK/mpirun.log")"
	done
	for ((k = 0; k < FAULT_NODES; k++)); do
		wait_for 60 node_status $k .node || fail "node $k has no status"
	done
}

job_read() { # starts the readers: READERS
	local k
	READERS=()
	for ((k = 0; k < FAULT_NODES; k++)); do
		on $k timeout -k 5 120 "$LIB/reader" "$MNT" "$WORK/order.$k" --compute-us "$FAULT_US" \
			>"$WORK/got.$k" 2>"$WORK/reader.$k" &
		READERS[k]=$!
	done
}

# Unmounts what is still mounted of NODES. The first umount must do, whoever asks.
job_end() { # NODES
	local k signal=$end
	for k in $1; do
		mounted "$k" || continue
		if [ $alone = 1 ]; then
			on "$k" timeout 30 umount "$MNT" 2>"$WORK/umount.err" || unmounted "$k" || wrong "umount of node $k gave $?"
		else
			on "$k" timeout 30 "$CLAIRFS" umount "$MNT" || unmounted "$k" || wrong "umount of node $k gave $?"
		fi
		[ $alone = 1 ] || wait_for 2 all_unmounted
	done
	all_unmounted || wrong "still mounted"
	[ -n "$signal" ] || wait_for 20 gone $JOB || { wrong "mpirun goes on after the umount"; signal=KILL; }
	[ -z "$signal" ] || cluster_end "$signal" || wrong "processes are left"
	wait_for 20 cluster_quiet || { cluster_end KILL; wrong "processes are left"; }
	wait $JOB 2>/dev/null
}
all_unmounted() {
	local k
	for ((k = 0; k < FAULT_NODES; k++)); do
		[ $lost = 1 ] && [ $k = 3 ] || unmounted $k || return 1
	done
}

fault() {
	local name=$1 word k nodes="0 1 2 3" errors=0 bytes=0 stall=0 source limit kept
	local do=: at='' start=60 lost=0 down=0 back=0 alone=0 end='' options='' more=2; shift
	for word in "$@"; do local "${word%%=*}=${word#*=}"; done
	[ $lost = 0 ] || nodes="0 1 2"
	at=${at:-$((RANDOM % 20 / 10)).$((RANDOM % 9 + 1))}
	FAULT_NAME=$name
	say "$name (after $at s)"
	rm -f "$WORK"/node?.log "$WORK"/got.?
	slow reset >/dev/null
	job_start "$options"
	kept=$(node_status 0 '[.peers[]? | select(.node == 3) | .home_bytes] | add // 0')
	FAULT_PID=$(job_pid 3) FAULT_PEER=$(job_peer 3)
	job_read
	sleep "$at"
	$do
	for k in $nodes; do
		wait "${READERS[k]}" || errors=$((errors + 1))
		[ "$(jq -c '[.files, .hash]' "$WORK/want.$k")" = "$(jq -c '[.files, .hash]' "$WORK/got.$k")" ] || bytes=$((bytes + 1))
	done
	[ $lost = 0 ] || kill "${READERS[3]}" 2>/dev/null
	[ $errors = 0 ] || wrong "$errors readers saw errors: $(tail -qn 1 "$WORK"/reader.?)"
	[ $bytes = 0 ] || wrong "$bytes nodes read other bytes than the source has"
	stall=$(for k in $nodes; do jq -s '[.[].stall_s] | add * 1000 | round' "$WORK/got.$k"; done | sort -n | tail -n 1)
	[ "${stall:-0}" -le "$FAULTS_ALLOWED" ] || wrong "the slowest reader was held up for $stall ms"
	if [ $down = 1 ]; then
		for k in 0 1 2; do
			wait_for 10 node_is $k '[.peers[] | select(.node == 3) | .state] | first' down || wrong "node $k does not say that node 3 is down"
			grep -q 'node 3 .*\(gone\|does not answer\)\|without the other nodes' "$WORK/node$k.log" || wrong "the log of node $k does not say it"
		done
	fi
	if [ $back = 1 ]; then
		for k in 0 1 2; do
			wait_for 30 node_is $k '[.peers[] | select(.node == 3) | .state] | first' up || wrong "node 3 is not back for node $k"
		done
	fi
	source=$(slow_count bytes)
	if [ "$more" != any ]; then
		limit=$((FAULT_D + FAULT_D * more / 100))
		[ $down = 0 ] || limit=$((limit + kept))
		# A node that goes on alone reads what it does not keep for itself.
		[ $down$lost = 10 ] && source=0 && for k in 0 1 2; do source=$((source + $(node_status $k .reads.pfs.bytes))); done
		[ "$source" -le "$limit" ] || wrong "the source gave $((source * 1000 / FAULT_D)) per mille of the dataset; $((kept * 1000 / FAULT_D)) were lost"
	fi
	FAULTS_ROW="$errors $bytes ${stall:-0} $((source * 1000 / FAULT_D))"
	say "  errors $errors, wrong $bytes, stall $stall ms, source $((source * 1000 / FAULT_D)) per mille"
	job_end "$nodes"
	on 3 umount -l "$MNT" 2>/dev/null
	return 0
}

# All of them, or those that are named by letters.
faults() { # [LETTERS] [WORD…: for every run]
	local all=${1:-abcdefgjk} letter; shift
	for letter in $(grep -o . <<<"$all"); do
		case $letter in
		0) fault "nothing" at=0 "$@" ;;
		a) fault "a mount process is killed" do=kill_mount lost=1 down=1 "$@" ;;
		b) fault "a peer process is killed" do=kill_peer down=1 "$@" ;;
		c)
			fault "a node is killed" do=kill_node lost=1 down=1 end=KILL "$@"
			cluster_link 3 up ;;
		d) fault "mpirun is killed" do=kill_mpirun alone=1 more=any "$@" ;;
		e) fault "a link is down for a second" do=link_flaps more=any "$@" ;;
		E) fault "a link is down for 5 seconds" do=link_away back=1 more=any "$@" ;;
		f)
			fault "a link turns slow" do=link_slow more=any "$@"
			cluster_link 3 none ;;
		g) CLUSTER_RECOVERY='' fault "MPI aborts" do=abort_peer alone=1 more=any "$@" ;;
		i)
			mkdir -p "$WORK/bin"
			cp "$CLAIRFS" "$WORK/bin/"
			echo "$WORK/bin/clairfs" >"$WORK/program.3"
			fault "a node has no peer process" start=150 alone=1 more=any "$@"
			[ "$(grep -c 'no peers: .*clairfs-peer' "$WORK/mpirun.log")" = 1 ] || wrong "not one line says it"
			rm "$WORK/program.3" ;;
		j)
			mkdir -p "$WORK/small"
			on 3 mount -t tmpfs -o size=3m none "$WORK/small" || fail "tmpfs"
			fault "a cache folder is full" options=",ram=2M,cache=$WORK/small:100M,free=0" more=15 "$@"
			on 3 umount "$WORK/small" ;;
		k) fault "a peer process is stopped" do=stop_peer back=1 more=any "$@" ;;
		K) fault "a mount process is stopped" do=stop_mount lost=1 more=any "$@" ;;
		esac
	done
}

# --- what happens ---------------------------------------------------------------------
kill_mount() { kill -9 "$FAULT_PID"; }
kill_peer() { kill -9 "$FAULT_PEER"; }
abort_peer() { kill -ABRT "$FAULT_PEER"; }
kill_node() { cluster_kill 3; }
kill_mpirun() {
	local pid
	for pid in $(cluster_processes "$CLUSTER_BRIDGE"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = mpirun ] && kill -9 "$pid"
	done
}
link_flaps() { cluster_link 3 down; sleep "${1:-1}"; cluster_link 3 up; }
link_away() { link_flaps 5; }
link_slow() { cluster_link 3 1mbit; }
stop_peer() { kill -STOP "$FAULT_PEER"; sleep "${FAULT_STOP:-10}"; kill -CONT "$FAULT_PEER"; }
stop_mount() { kill -STOP "$FAULT_PID"; sleep "${FAULT_STOP:-10}"; kill -CONT "$FAULT_PID"; }
