#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A real torch loader in an order that no sampler makes (Python's random.sample for each batch): with
# the same seed the next run is known after a few opens; with another one, or from a damaged
# file, it is not, and reads the right bytes all the same.
. "$(dirname "$0")/../lib/mount.sh"
python=/usr/bin/python3
"$python" -c 'import numpy, torch' 2>/dev/null || skip "no torch for $python"
export HOME=$WORK/home XDG_CACHE_HOME=$WORK/home/cache
mkdir -p "$XDG_CACHE_HOME"
mounts=0
dataset "$WORK/src" 800 2000 6 4
list_of "$WORK/src" | shuf --random-source=<(yes 3) >"$WORK/list"
o=ram=64M,staging=32M

torch() { within 240 "$python" "$TOP/tests/lib/torch_loader.py" "$@" 2>>"$WORK/torch.log"; }
order() { status "$mnt" ".streams[0].order.$1"; }
run() { # run SEED: two epochs
	local native=$WORK/native-$1
	[ -s "$native" ] || torch "$WORK/src" "$WORK/list" drawn workers=2 "seed=$1" >"$native"
	mnt=$WORK/mnt-$((++mounts)) # a daemon that still ends is not asked
	mount_clairfs "$WORK/src" "$mnt" -o $o
	torch "$mnt" "$WORK/list" drawn workers=2 "seed=$1" us=500 >"$WORK/mounted" ||
		fail "the loader gave $?"
	cmp "$native" "$WORK/mounted" || fail "not the source's bytes"
	status "$mnt" '[.streams[0].order, .discovery] | tostring'
}

run 5
[ "$(order how)" = unknown ] || fail "an answer to batches that nobody can know"
[ "$(status "$mnt" .discovery.why)" != null ] || fail "it does not say why"
umount_clean "$mnt"
# The daemon may be at it for a moment after the mount is gone.
kept() { ls "$XDG_CACHE_HOME"/clairfs/*.opens; }
wait_for 60 kept || fail "the opens were not kept"
opens=$(kept)

run 5
[ "$(order how)" = remembered ] || fail "the same run is not known"
want "known within 100 opens" [ "$(order opens_to_find)" -le 100 ]
[ "$(status "$mnt" '.streams[0].epochs[] | select(.epoch == 1) | .unpredicted')" = 0 ] ||
	fail "the second epoch: $(status "$mnt" '.streams[0].epochs')"
umount_clean "$mnt"

touch "$WORK/before"
run 6
[ "$(order how)" = unknown ] || fail "another run was taken for the first one"
umount_clean "$mnt"
wait_for 20 test "$opens" -nt "$WORK/before" || say "the opens of the last run were not kept"

printf 'damage' | dd of="$opens" bs=1 seek=70 conv=notrunc 2>/dev/null
run 6
[ "$(order how)" = unknown ] || fail "a damaged file was used"
grep -q 'left aside' "$LOG" || fail "nothing is said of a damaged file"
umount_clean "$mnt"
