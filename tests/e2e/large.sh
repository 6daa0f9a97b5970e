#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Files from 1 KB to more than 4 GiB, most of them larger than one piece, behind a slow file system, with
# a cache folder: each is opened and read once there, whatever the epochs and mounts, in bounded
# memory, and a byte that went wrong in the folder is never served.
. "$(dirname "$0")/../lib/mount.sh"
free=$(df -B1 --output=avail "$WORK" | tail -n 1)
[ "$free" -gt $((8 << 30)) ] || skip "needs 8 GiB of room for files"
mkdir -p "$WORK/src/a" "$WORK/src/b"
s=$WORK/src
for i in $(seq 1 30); do head -c $((1000 * i * i)) /dev/urandom >"$s/a/small$i"; done
for i in 5 9 17 33; do head -c $((i * 1048576 - i)) /dev/urandom >"$s/a/large$i"; done
head -c 120000001 /dev/urandom >"$s/b/hundred"
head -c 5000000 /dev/urandom >"$s/b/holes"
truncate -s 300M "$s/b/holes"
printf 'the end' >>"$s/b/holes"
n=36
o="seed=3,sampler=torch-distributed,index=sorted,ram=1M,staging=340M,free=0,cache=$WORK/cache:2G"
d=$(find "$s" -type f -printf '%s\n' | awk '{ t += $1 } END { printf "%d", t }')
orders "$s" "$o" 0 2 >"$WORK/order"
"$LIB/reader" "$s" "$WORK/order" >"$WORK/native"
slow_start "$s" "$WORK/pfs" latency=300 bandwidth=400M

same() {
	reader "$WORK/mnt" "$WORK/order" >/dev/null || fail "$1: the reader failed"
	[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] ||
		fail "$1: not the source's bytes"
}
bounded() {
	# Beside its 1 MiB of arena: buffers, and what the program itself needs.
	rss=$(status "$WORK/mnt" .process.rss_peak_bytes)
	say "$1: at most $((rss >> 20)) MiB resident; opens $(slow_count open), bytes $(slow_count bytes) of $d"
	[ "$rss" -gt 0 ] && [ "$rss" -lt $((160 << 20)) ] || fail "$1: $rss bytes resident"
}
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "first mount"
bounded "first mount"
# A small file that a READ wanted before anything was decided may be fetched a second time.
[ "$(slow_count open)" -le $((n + 3)) ] || fail "$(slow_count open) opens of $n files"
[ "$(slow_count bytes)" -le $((d + d / 100)) ] || fail "$(slow_count bytes) bytes of $d"
umount_clean "$WORK/mnt"
within 100 "$CLAIRFS" verify "$WORK/cache" || fail "verify"

slow reset
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "second mount"
bounded "second mount"
# But for the small files that the RAM tier of 1 MiB had.
[ "$(slow_count bytes)" -le 1048576 ] || fail "the second mount read the source: $(slow_count bytes)"
umount_clean "$WORK/mnt"

# One bit of the largest segment.
f=$(find "$WORK/cache" -name 'segment-*' -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
at=$(($(stat -c %s "$f") / 2))
byte=$(od -An -tu1 -j $at -N 1 "$f")
printf "\\x$(printf %x $((byte ^ 16)))" | dd of="$f" bs=1 seek=$at conv=notrunc status=none
within 100 "$CLAIRFS" verify "$WORK/cache" >/dev/null && fail "verify did not see a flipped bit"
slow reset
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "a flipped bit"
bounded "a flipped bit"
[ "$(slow_count bytes)" -gt 2000000 ] || fail "a damaged piece was not fetched again"
[ "$(slow_count bytes)" -le $((4194304 + 1048576)) ] || fail "more than the damaged piece was fetched: $(slow_count bytes)"
umount_clean "$WORK/mnt"
within 100 "$CLAIRFS" verify "$WORK/cache" || fail "the folder was not repaired"

# More than 4 GiB, more than staging: its end is read through, in the same memory.
truncate -s 4296M "$s/b/huge"
printf 'the end' >>"$s/b/huge"
slow_stop
slow_start "$s" "$WORK/pfs" latency=300
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
[ "$(stat -c %s "$WORK/mnt/b/huge")" = "$(stat -c %s "$s/b/huge")" ] || fail "the size of a huge file"
within 100 cmp <(tail -c 400000007 "$WORK/mnt/b/huge") <(tail -c 400000007 "$s/b/huge") ||
	fail "not the bytes of the huge file"
bounded "more than 4 GiB"
umount_clean "$WORK/mnt"
