#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/bench/memory.sh [FILES]: what a mount takes in memory beside its budgets. A memory cgroup
# (v1 or v2) counts the daemon's own memory, the pages of mount and source that it brought in, and
# the kernel's inodes and names. Prints; nothing fails by size. As root.
. "$(dirname "$0")/../lib/mount.sh"
n=${1:-5000} opt=seed=42,sampler=torch-distributed,index=imagefolder
[ "$(id -u)" = 0 ] || skip "needs root"

if [ -w /sys/fs/cgroup/memory/cgroup.procs ]; then
	group=/sys/fs/cgroup/memory/clairfs-bench.$$ usage=memory.usage_in_bytes peak=memory.max_usage_in_bytes
elif [ -w /sys/fs/cgroup/cgroup.procs ]; then
	group=/sys/fs/cgroup/clairfs-bench.$$ usage=memory.current peak=memory.peak
else
	skip "no memory cgroup that may be written"
fi

# The mount in a group of its own, the readers outside: what they bring in is theirs.
grouped_mount() {
	mkdir "$group" || fail "no cgroup"
	(echo $BASHPID >"$group/cgroup.procs" && exec timeout 300 "$CLAIRFS" mount "$@" 2>>"$LOG") ||
		fail "mount: $(tail -n 3 "$LOG")"
	MOUNTED+=("$2")
}
grouped_umount() {
	umount_clean "$1"
	wait_for 10 rmdir "$group"
}
row() { # NAME BUDGET: usage now and the most there was
	awk -v name="$1" -v u="$(cat "$group/$usage")" -v p="$(cat "$group/$peak")" -v b="$2" 'BEGIN {
		printf "  %-44s now %6.1f MB  peak %6.1f MB  budget %6.1f MB  now / budget %.3f  peak / budget %.3f\n",
			name, u / 1e6, p / 1e6, b / 1e6, u / b, p / b }'
}
bytes_of() { numfmt --from=iec "$1"; }

truncate -s 4G "$WORK/disk.img" && mkfs.ext4 -q "$WORK/disk.img" && mkdir "$WORK/disk" &&
	mount -o loop "$WORK/disk.img" "$WORK/disk" && MOUNTED+=("$WORK/disk") || skip "no loop device"
dataset "$WORK/disk/source" "$n" 100000 50 1
d=$(find "$WORK/disk/source" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
orders "$WORK/disk/source" $opt 0 2 >"$WORK/order"
say "$n files, $((d / 1000000)) MB; source on ext4, cold"
for row in "all fits, in the kernel:600M:32M:kernel" "all fits, in an arena:600M:32M:arena" \
	"half fits, in the kernel:200M:64M:kernel" "half fits, in an arena:200M:64M:arena"; do
	IFS=: read -r name ram staging keep <<<"$row"
	sync
	echo 3 >/proc/sys/vm/drop_caches
	mkdir -p "$WORK/mnt"
	grouped_mount "$WORK/disk/source" "$WORK/mnt" -o "$opt,ram=$ram,staging=$staging,keep=$keep"
	"$LIB/reader" "$WORK/mnt" "$WORK/order" --threads 2 --compute-us 800 >/dev/null
	used=$(status "$WORK/mnt" '.ram.used + .staging.used')
	budget=$(($(bytes_of $ram) + $(bytes_of $staging)))
	full=$((d + $(bytes_of $staging)))
	row "$name (ram=$ram, staging=$staging)" $((full < budget ? full : budget))
	say "      counted as used: $((used / 1000000)) MB; $(status "$WORK/mnt" '"rss peak \(.process.rss_peak_bytes / 1e6 | floor) MB"')"
	grouped_umount "$WORK/mnt"
done
rm -rf "$WORK/disk/source"

echo
say "resident memory beyond the budgets: nothing is staged (ram=1M, staging=1M), every name looked up"
for files in 100000 1000000; do
	mkdir -p "$WORK/many" "$WORK/mnt"
	mount -t tmpfs -o size=6G,nr_inodes=3000000 many "$WORK/many" && MOUNTED+=("$WORK/many")
	dataset "$WORK/many/source" $files 0 100 1
	paths=$(find "$WORK/many/source" -printf '%P\n' | wc -c)
	grouped_mount "$WORK/many/source" "$WORK/mnt" -o "$opt,ram=1M,staging=1M"
	find "$WORK/mnt" -type f | wc -l | grep -qx $files || say "  the mount does not list all"
	pid=$(daemon_pid "$WORK/mnt")
	awk -v rss="$(awk '/VmRSS/ { print $2 * 1024 }' /proc/"$pid"/status)" -v n=$files -v p="$paths" 'BEGIN {
		allowed = 64 * 1048576 + 64 * n + p
		printf "  %8d files: resident %.1f MB, allowed %.1f MB (64 MiB + 64 B a sample + %.1f MB of paths)\n",
			n, rss / 1e6, allowed / 1e6, p / 1e6 }'
	grouped_umount "$WORK/mnt"
	rm -rf "$WORK/many/source"
	umount "$WORK/many"
done
