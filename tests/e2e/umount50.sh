#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# 50 mounts and unmounts while samples are being staged, by `clairfs umount` and by umount(8);
# no daemon stays.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 800 50000 8 9
slow_start "$WORK/src" "$WORK/pfs" latency=1000 cache=60 bandwidth=40M
(cd "$WORK/src" && find . -type f -printf '%P\n' | head -n 20) >"$WORK/list"
for i in $(seq 50); do
	mount_clairfs "$WORK/pfs" "$WORK/mnt" -o seed=$i,sampler=torch-distributed,ram=100M
	pid=$(daemon_pid "$WORK/mnt")
	[ "$pid" -gt 0 ] || fail "no daemon at mount $i"
	case $((i % 3)) in
	0) ;;
	1) reader "$WORK/mnt" "$WORK/list" --limit 5 >/dev/null || fail "the reader failed at mount $i" ;;
	2) wait_for 10 status_is "$WORK/mnt" .reads.pfs.samples -gt 3 || fail "no staging at mount $i" ;;
	esac
	if [ $((i % 2)) = 0 ] && [ "$(id -u)" = 0 ]; then
		within 20 umount "$WORK/mnt" || fail "umount(8) at mount $i"
	else
		umount_clean "$WORK/mnt"
	fi
	wait_for 20 gone "$pid" || fail "the daemon of mount $i, $pid, is still there"
done
[ "$(grep -c "$WORK/mnt " /proc/self/mountinfo)" = 0 ] || fail "mounts are left"
