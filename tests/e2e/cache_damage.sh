#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A cache folder whose files are cut at random bytes, or have bytes changed, never gives wrong
# bytes, and the mount comes up.
. "$(dirname "$0")/../lib/mount.sh"
n=200
dataset "$WORK/src" $n 30000 4 8
o="seed=3,sampler=torch-distributed,index=imagefolder,ram=1M,staging=4M,free=0,cache=$WORK/cache:200M"
orders "$WORK/src" "$o" 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
same() {
	reader "$WORK/mnt" "$WORK/order" >/dev/null || fail "$1: the reader failed"
	[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "$1: not the source's bytes"
}
fill() {
	mount_clairfs "$WORK/src" "$WORK/mnt" -o "$o"
	same "filling"
	umount_clean "$WORK/mnt"
}
fill
rm -rf "$WORK/full"
cp -a "$WORK/cache" "$WORK/full"
RANDOM=11
for round in $(seq 12); do
	rm -rf "$WORK/cache"
	cp -a "$WORK/full" "$WORK/cache"
	mapfile -t files < <(find "$WORK/cache" -type f -size +0 | LC_ALL=C sort)
	[ ${#files[@]} -gt 0 ] || fail "an empty cache folder"
	f=${files[RANDOM % ${#files[@]}]}
	# The largest files hold the samples: every other round takes the largest.
	[ $((round % 2)) = 0 ] && f=$(find "$WORK/cache" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d' ' -f2-)
	size=$(stat -c %s "$f")
	at=$(((RANDOM * 32768 + RANDOM) % size))
	if [ $((round % 3)) = 0 ]; then
		truncate -s $at "$f"
		what="cut at $at of $size"
	else
		printf '\xa5\x5a\xff' | dd of="$f" bs=1 seek=$at conv=notrunc status=none
		what="changed at $at of $size"
	fi
	# Told, or repaired, by verify; never a crash.
	within 60 "$CLAIRFS" verify "$WORK/cache" >/dev/null 2>"$WORK/verify"
	[ $? -lt 124 ] || fail "verify: ${f##*/} $what"
	mount_clairfs "$WORK/src" "$WORK/mnt" -o "$o"
	same "${f##*/} $what"
	umount_clean "$WORK/mnt"
	say "${f##*/} $what: right bytes"
done
