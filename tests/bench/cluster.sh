#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/bench/cluster.sh [FILES]: four nodes in network namespaces, each with its own mounts, cache
# folder, RAM budget and shaped link, over one slow source that all of them share; DistributedSampler
# over four ranks. Prints what is measured beside what it should be; nothing fails by time. As root.
. "$(dirname "$0")/../lib/mount.sh"
. "$TOP/tests/lib/cluster.sh"
files=${1:-1500} nodes=4 epochs=5
opt=seed=42,sampler=torch-distributed,index=imagefolder,world=$nodes,epochs=$epochs
pfs_mb=15 link=200mbit link_mb=25 # MB/s of the source for all together; of each link, each way
[ -x "$BUILD/tools/clairfs-peer" ] || skip "built without MPI"
mkdir "$WORK/data" "$WORK/caches"
dataset "$WORK/data" "$files" 100000 30 1
d=$(find "$WORK/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
largest=$(find "$WORK/data" -type f -printf '%s\n' | sort -n | tail -n 1)
for ((k = 0; k < nodes; k++)); do
	for ((e = 0; e < epochs; e++)); do
		"$CLAIRFS" order "$WORK/data" -o "$opt" --epoch $e --rank $k --paths
		echo
	done >"$WORK/order.$k"
	awk 'NF { print } !NF { exit }' "$WORK/order.$k" >"$WORK/order0.$k"
	awk 'later { print } !NF { later = 1 }' "$WORK/order.$k" >"$WORK/later.$k"
	for part in order order0 later; do
		"$LIB/reader" "$WORK/data" "$WORK/$part.$k" >"$WORK/want.$part.$k"
	done
done
slow_start "$WORK/data" "$WORK/pfs" latency=500 bandwidth=${pfs_mb}M
cluster_start $nodes $link
say "$files files, $((d / 1000000)) MB, the largest $((largest / 1000)) KB; $nodes nodes; source $pfs_mb MB/s, links $link_mb MB/s; $(nproc) cores"

begin() { # OPTIONS, the cache word with @ for the node's number
	local k
	cat >"$WORK/node.sh" <<-XX
		mkdir -p "$WORK/mnt"
		options=\$(echo "$1" | sed "s/@/\$OMPI_COMM_WORLD_RANK/g")
		exec "$CLAIRFS" mount "$WORK/pfs" "$WORK/mnt" -o "$opt,\$options,log=info:$WORK/node\$OMPI_COMM_WORLD_RANK.log"
	XX
	mkdir -p "$WORK/mnt"
	CLUSTER_LIMIT=600 cluster_mpirun -- bash "$WORK/node.sh" </dev/null >"$WORK/mpirun.log" 2>&1 &
	MPIRUN_PID=$!
	for ((k = 0; k < nodes; k++)); do
		wait_for 60 on $k mountpoint -q "$WORK/mnt" || fail "node $k: $(tail -n 5 "$WORK/mpirun.log")"
		wait_for 30 node_status $k .node || fail "node $k has no status"
	done
}
node_status() { on "$1" timeout 30 "$CLAIRFS" status "$WORK/mnt" --json | jq -r "$2"; }
sum() { local k s=0; for ((k = 0; k < nodes; k++)); do s=$((s + $(node_status $k "$1"))); done; echo $s; }
finish() {
	on 0 timeout 60 "$CLAIRFS" umount "$WORK/mnt" || say "  umount gave $?"
	wait $MPIRUN_PID
	rm -rf "$WORK"/caches/*
}
all_read() { # ORDER COMPUTE_US [WHERE]: all nodes at once
	local k pids=()
	for ((k = 0; k < nodes; k++)); do
		on $k timeout 300 "$LIB/reader" "${3:-$WORK/mnt}" "$WORK/$1.$k" --threads 2 --compute-us "$2" >"$WORK/got.$k" &
		pids+=($!)
	done
	wait "${pids[@]}"
}
same() { # PART
	local k wrong=0
	for ((k = 0; k < nodes; k++)); do
		[ "$(jq -c '[.files, .errors, .hash]' "$WORK/want.$1.$k")" = "$(jq -c '[.files, .errors, .hash]' "$WORK/got.$k")" ] || wrong=$((wrong + 1))
	done
	[ $wrong = 0 ] && echo "equal" || echo "$wrong NODES DIFFER"
}
# The slowest node's seconds of epochs FIRST…
seconds() { # FIRST: mean over the epochs of the slowest node's time
	jq -s --argjson first "$1" --argjson n $nodes '[range($first; (length / $n)) as $e | [range($n) as $k | .[$k * (length / $n) + $e].seconds] | max] | add / length' \
		"$WORK"/got.0 "$WORK"/got.1 "$WORK"/got.2 "$WORK"/got.3
}
bound() { awk -v d="$d" -v c="$1" -v e=$epochs 'BEGIN { x = d - c; printf "%.0f", d + (e - 1) * (x > 0 ? x : 0) }'; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", b ? a / b : 0 }'; }
# By node: bytes in, bytes out, from the source, so far.
counters() { for ((k = 0; k < nodes; k++)); do node_status $k '"\([.peers[].bytes_in] | add) \([.peers[].bytes_out] | add) \(.reads.pfs.bytes)"'; done; }
# The fluid bound of an epoch, from two such: the largest over the nodes of what came in, what went
# out, and all that came from the source, each over its bandwidth. (Memory and readers' own time are
# far below.)
fluid() {
	paste -d' ' "$1" "$2" | awk -v link=$link_mb -v pfs=$pfs_mb -v e=$((epochs - 1)) '
		{ i = ($4 - $1) / 1e6 / link; o = ($5 - $2) / 1e6 / link; p += ($6 - $3) / 1e6 / pfs
		  if (i > m) m = i; if (o > m) m = o }
		END { printf "%.3f", (p > m ? p : m) / e }'
}

regime() { # NAME OPTIONS CAPACITY_PER_NODE
	local pfs first b late f bytes
	begin "$2"
	all_read order0 0
	bytes=$(same order0)
	first=$(seconds 0)
	counters >"$WORK/before"
	all_read later 0
	counters >"$WORK/after"
	bytes="$bytes, $(same later)"
	pfs=$(sum .reads.pfs.bytes)
	b=$(bound $((nodes * $3)))
	late=$(seconds 0)
	f=$(fluid "$WORK/before" "$WORK/after")
	printf '  %s\n    bytes %s; PFS / bound %s; opens a sample %s, walks %s, errors of peers %s\n' "$1" "$bytes" \
		"$(ratio "$pfs" "$b")" "$(ratio "$(sum .pfs.opens)" "$(sum .reads.pfs.samples)")" "$(sum .pfs.walks)" "$(sum .errors.peer)"
	printf '    epoch 1 %.2f s; epochs 2-%d %.3f s each: %s x plain; fluid bound %s s: %s\n' "$first" $epochs "$late" \
		"$(ratio "$plain" "$late")" "$f" "$(ratio "$late" "$f")"
	finish
}
mb() { echo $(($1 / 1048576 + 1))M; }
say
say "a plain loader on the slow source, one epoch:"
all_read order0 0 "$WORK/pfs"
plain=$(seconds 0)
say "  $plain s"

say
say "five epochs, readers at full speed:"
regime "S < d1" "ram=$(mb $((d * 11 / 10))),staging=16M" $((d * 11 / 10))
regime "d1 < S < D (RAM + directory)" "ram=$(mb $((d / 2))),staging=16M,free=0,cache=$WORK/caches/@:$(mb $((d * 7 / 10)))" $((d * 12 / 10))
regime "D < S < N D" "ram=$(mb $((d * 3 / 10))),staging=16M" $((d * 3 / 10))
regime "D < S < N D, NoPFS's placement" "ram=$(mb $((d * 3 / 10))),staging=16M,placement=nopfs" $((d * 3 / 10))
regime "N D < S" "ram=$(mb $((d / 8))),staging=16M" $((d / 8))

say
say "epoch 1, each node asks for 70 % of its share of the source:"
begin "ram=$(mb $((d / 3))),staging=32M"
us=$((d / files * nodes * 100 / (pfs_mb * 70) * 2)) # two threads a node
all_read order0 $us
jq -rs '"  stall \([.[].stall_s] | max * 1000 | round) ms of \([.[].seconds] | max) s: \(([.[].stall_s] | max) / ([.[].seconds] | max) * 10000 | round / 100) %"' "$WORK"/got.?
say "idle for 20 s, then one file:"
sleep 2
cpu() { local k p s=0; for p in $(pgrep -f "$WORK/mnt -o" ) $(pgrep -x clairfs-peer); do s=$((s + $(awk '{ print $14 + $15 }' /proc/$p/stat 2>/dev/null || echo 0))); done; echo $s; }
a=$(cpu); sleep 20; b=$(cpu)
awk -v a="$a" -v b="$b" -v n=$nodes 'BEGIN { printf "  CPU a node: %.3f %% of a core\n", (b - a) / 100 / 20 / n * 100 }'
# A file that node 1 keeps and node 0 has not staged: the only question since then.
file=$(on 0 find "$WORK/mnt" -type f | head -n 400 | while read -r f; do
	[ "$(on 0 getfattr --only-values -n user.clairfs.tier "$f" 2>/dev/null)" = peer:1 ] && echo "$f" && break
done)
sleep 11
on 0 "$LIB/reader" "$WORK/mnt" <(echo "${file#"$WORK/mnt/"}") | jq -r '"  a file of another node, asked for then: open + read \(.io_s * 1000) ms"'
finish

say
say "a node is killed in epoch 1:"
begin "ram=$(mb $((d / 3))),staging=32M"
(sleep 4; cluster_kill 3) &
all_read order 1000
wait $! 2>/dev/null
for k in 0 1 2; do
	[ "$(jq -c '[.files, .errors, .hash]' "$WORK/want.order.$k")" = "$(jq -c '[.files, .errors, .hash]' "$WORK/got.$k")" ] && w=right || w=WRONG
	jq -rs --arg w $w --arg k $k '"  node \($k): bytes \($w), errors \([.[].errors] | add), seconds \([.[].seconds]), stall \([.[].stall_s])"' "$WORK/got.$k"
done
