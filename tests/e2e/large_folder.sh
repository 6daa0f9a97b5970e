#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A folder of 200,000 empty files: the mount lists them all, and the daemon's memory stays within
# what a sample may cost. A tree of many folders (the icons, where installed): the same names.
. "$(dirname "$0")/../lib/mount.sh"
n=200000
mkdir "$WORK/src" "$WORK/src/all"
(cd "$WORK/src/all" && seq -f 'empty%06.0f' $n | xargs -n 5000 touch) || skip "no room for $n files"

within_memory() { # MNT SAMPLES PATH-BYTES USED-BYTES
	local rss
	rss=$(status "$1" .process.rss_peak_bytes)
	local bound=$((64 * 1048576 + 64 * $2 + $3 + $4))
	say "$1: $rss bytes at most resident, bound $bound"
	# Sanitizers have shadows of everything.
	grep -qE 'lib(asan|tsan)' "/proc/$(daemon_pid "$1")/maps" || [ "$rss" -le $bound ] ||
		fail "the daemon used $rss bytes, more than $bound"
}

mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=1,sampler=torch-distributed,index=sorted,ram=1M,staging=1M
[ "$(within 60 ls -U "$WORK/mnt/all" | wc -l)" = $n ] || fail "ls does not show $n names"
within 60 find "$WORK/mnt" -printf '%P\n' | LC_ALL=C sort | md5sum >"$WORK/ours"
find "$WORK/src" -printf '%P\n' | LC_ALL=C sort | md5sum >"$WORK/theirs"
cmp "$WORK/ours" "$WORK/theirs" || fail "not the names of the source"
[ "$(status "$WORK/mnt" .samples)" = $n ] || fail "samples: $(status "$WORK/mnt" .samples)"
within_memory "$WORK/mnt" $n $((n * 16)) $((2 * 1048576))
umount_clean "$WORK/mnt"

icons=/usr/share/icons/Papirus
if [ -d $icons ]; then
	mount_clairfs $icons "$WORK/mnt" -o ram=1M,staging=1M
	within 60 find "$WORK/mnt" -printf '%P %y %l\n' | LC_ALL=C sort >"$WORK/ours"
	find $icons -printf '%P %y %l\n' | LC_ALL=C sort >"$WORK/theirs"
	cmp "$WORK/ours" "$WORK/theirs" || fail "$icons: not the names of the source"
	within_memory "$WORK/mnt" "$(wc -l <"$WORK/theirs")" "$(wc -c <"$WORK/theirs")" $((2 * 1048576))
	umount_clean "$WORK/mnt"
fi
exit 0
