# SPDX-License-Identifier: BSD-3-Clause
# Sourced after mount.sh: a cluster on this machine. Each node has network, mount and host name
# namespaces of its own, that a sleeping process holds; all hang on a bridge in one more, where
# mpirun runs too. What is mounted before cluster_start is seen by all nodes.
#   cluster_start N [RATE]     nodes 0…N-1 (host names node0…), links shaped to RATE (tc: 80mbit)
#   on NODE COMMAND…           in its namespaces, with its own XDG_RUNTIME_DIR and TMPDIR
#   cluster_mpirun [OPTION…] -- COMMAND…   one process a node, rank k on node k
#   cluster_link NODE down | up | none | RATE
#   cluster_end SIGNAL [SECONDS]   ends mpirun so, and waits (20 s) until nothing of it is left
#   cluster_kill NODE          SIGKILL to all that runs there; its link goes down
#   cluster_stop               (also at the end of the script)
# $CLUSTER/nodeK is for what is node K's own. Skips when this machine cannot do it.
CLUSTER=$WORK/c
CLUSTER_PIDS=() # who holds the namespaces of node K
CLUSTER_BRIDGE=
CLUSTER_RANK=$BASHPID
export CLAIR_CLUSTER=$CLUSTER OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cluster_address() { echo "10.77.0.$((10 + $1))"; }
in_bridge() { nsenter -t "$CLUSTER_BRIDGE" -n -- "$@"; }
in_net() { local node=$1; shift; nsenter -t "${CLUSTER_PIDS[node]}" -n -- "$@"; }

# Starts who holds new namespaces: sets HOLDER.
hold() {
	local mark=$CLUSTER/held.$RANDOM$RANDOM
	unshare "$@" -- bash -c 'touch "$1"; exec sleep infinity' hold "$mark" </dev/null >/dev/null 2>&1 &
	HOLDER=$!
	started $HOLDER
	wait_for 10 test -e "$mark" || skip "no namespaces here"
	rm -f "$mark"
}

# The link of node K in both directions.
shape() {
	local node=$1 rate=$2 where
	in_net "$node" tc qdisc del dev eth0 root 2>/dev/null
	in_bridge tc qdisc del dev "v$node" root 2>/dev/null
	[ "$rate" = none ] && return 0
	in_net "$node" tc qdisc add dev eth0 root tbf rate "$rate" burst 128kb latency 50ms &&
		in_bridge tc qdisc add dev "v$node" root tbf rate "$rate" burst 128kb latency 50ms
}

start_node() {
	local node=$1 rate=$2 address name=node$1
	address=$(cluster_address "$node")
	mkdir -p "$CLUSTER/$name/tmp"
	mkdir -m 700 -p "$CLUSTER/$name/runtime"
	hold -n -m -u --propagation private
	CLUSTER_PIDS[node]=$HOLDER
	nsenter -t "$HOLDER" -u -- hostname "$name"
	in_bridge ip link add "v$node" type veth peer name eth0 netns "$HOLDER" &&
		in_bridge ip link set "v$node" master br0 up &&
		in_net "$node" ip link set lo up &&
		in_net "$node" ip addr add "$address/24" dev eth0 &&
		in_net "$node" ip link set eth0 up || skip "no veth here"
	shape "$node" "$rate" || skip "no tbf here"
	echo "$HOLDER $name" >"$CLUSTER/hosts/$address"
	echo "$HOLDER $name" >"$CLUSTER/hosts/$name"
}

cluster_start() {
	local n=$1 rate=${2:-none} i
	[ "$(id -u)" = 0 ] || skip "a cluster of namespaces needs root"
	for i in mpirun ip tc nsenter unshare; do
		command -v $i >/dev/null || skip "$i is not installed"
	done
	mkdir -p "$CLUSTER/hosts"
	hold -n
	CLUSTER_BRIDGE=$HOLDER
	in_bridge ip link set lo up &&
		in_bridge ip link add br0 type bridge &&
		in_bridge ip addr add 10.77.0.1/24 dev br0 &&
		in_bridge ip link set br0 up || skip "no bridge here"
	for ((i = 0; i < n; i++)); do start_node "$i" "$rate"; done
	for ((i = 0; i < n; i++)); do
		wait_for 20 in_bridge bash -c ": </dev/udp/$(cluster_address "$i")/9" ||
			fail "node $i cannot be reached"
	done
}

on() {
	local name=node$1 pid=${CLUSTER_PIDS[$1]}; shift
	XDG_RUNTIME_DIR=$CLUSTER/$name/runtime TMPDIR=$CLUSTER/$name/tmp CLAIR_NODE=$name \
		nsenter -t "$pid" -n -m -u -- \
		bash -c 'cd "$1" 2>/dev/null; shift; exec "$@"' on "$PWD" "$@"
}

# With a deadline: CLUSTER_LIMIT seconds. Ends with mpirun's status.
cluster_mpirun() {
	local options=() hosts= i
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	for i in "${!CLUSTER_PIDS[@]}"; do hosts+=,$(cluster_address "$i"); done
	TMPDIR=$CLUSTER within "${CLUSTER_LIMIT:-150}" nsenter -t "$CLUSTER_BRIDGE" -n -- mpirun \
		${CLUSTER_RECOVERY---enable-recovery} \
		--mca plm_rsh_agent "$TOP/tests/lib/netns-agent" --mca plm_rsh_no_tree_spawn 1 \
		--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include 10.77.0.0/24 \
		--mca oob_tcp_if_include 10.77.0.0/24 \
		-H "${hosts#,}" -N 1 "${options[@]}" "$@"
}

cluster_link() {
	case $2 in
	down) in_bridge ip link set "v$1" nomaster ;;
	up) in_bridge ip link set "v$1" master br0 ;;
	*) shape "$1" "$2" ;;
	esac
}

# mpirun does not end by itself when a node of it was cut off.
cluster_end() {
	local pid node
	for pid in $(cluster_processes "$CLUSTER_BRIDGE"); do
		[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = mpirun ] && kill "-$1" "$pid"
	done
	wait_for "${2:-20}" cluster_quiet && return 0
	say "left after mpirun's end:"
	for node in "${!CLUSTER_PIDS[@]}"; do
		for pid in $(cluster_processes "${CLUSTER_PIDS[node]}"); do
			say "  node $node: $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null)"
		done
		kill_within "${CLUSTER_PIDS[node]}"
	done
	kill_within "$CLUSTER_BRIDGE"
	return 1
}
# Nothing runs on the nodes.
cluster_quiet() {
	local pid
	for pid in "$CLUSTER_BRIDGE" "${CLUSTER_PIDS[@]}"; do
		[ -z "$(cluster_processes "$pid")" ] || return 1
	done
}

# Those whose network namespace is that of HOLDER, but HOLDER.
cluster_processes() {
	local ns pid
	ns=$(readlink "/proc/$1/ns/net") || return
	for pid in /proc/[0-9]*; do
		pid=${pid#/proc/}
		[ "$pid" != "$1" ] && [ "$(readlink "/proc/$pid/ns/net" 2>/dev/null)" = "$ns" ] && echo "$pid"
	done
}
kill_within() {
	local pids
	pids=$(cluster_processes "$1")
	# shellcheck disable=SC2086
	[ -z "$pids" ] || kill -9 $pids 2>/dev/null
}

cluster_kill() {
	cluster_link "$1" down
	kill_within "${CLUSTER_PIDS[$1]}"
}

cluster_stop() {
	local pid
	[ $BASHPID = "$CLUSTER_RANK" ] || return 0
	for pid in $CLUSTER_BRIDGE "${CLUSTER_PIDS[@]}"; do
		kill_within "$pid"
		kill -9 "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
	done
	CLUSTER_PIDS=() CLUSTER_BRIDGE=
}
cluster_exit() {
	local code=$?
	cluster_stop
	(exit $code)
	cleanup
}
trap cluster_exit EXIT
