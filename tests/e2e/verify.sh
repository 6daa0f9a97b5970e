#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `verify` on a good cache, a damaged one, after a repair, one in use, and on what is none.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 200 30000 4 8
o="seed=3,sampler=torch-distributed,index=imagefolder,ram=1M,staging=4M,free=0,cache=$WORK/cache:50M"
orders "$WORK/src" "$o" 0 0 >"$WORK/order"
check() { within 60 "$CLAIRFS" verify "$@" >"$WORK/out" 2>"$WORK/err"; }
mount_clairfs "$WORK/src" "$WORK/mnt" -o "$o"
reader "$WORK/mnt" "$WORK/order" >/dev/null || fail "the reader failed"
check "$WORK/cache" && fail "a cache in use was verified"
grep -q 'a mount uses it' "$WORK/err" || fail "in use: $(cat "$WORK/err")"
umount_clean "$WORK/mnt"
check "$WORK/cache" || fail "a good cache gave $?"
grep -q ' 0 damaged' "$WORK/out" || fail "a good cache: $(cat "$WORK/out")"
[ "$(cut -d' ' -f1 "$WORK/out")" -ge 20 ] || fail "nearly nothing was cached: $(cat "$WORK/out")"

f=$(find "$WORK/cache" -name 'segment-*' | LC_ALL=C sort | head -n 1)
head -c 16 /dev/zero | tr '\0' '\245' | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") / 2)) conv=notrunc status=none
check "$WORK/cache"; [ $? = 1 ] || fail "damage was not told"
grep -q '^damaged: ' "$WORK/out" || fail "no line names the damage: $(cat "$WORK/out")"
check --repair "$WORK/cache" || fail "--repair gave $?"
check "$WORK/cache" || fail "damaged after the repair: $(cat "$WORK/out")"
check "$WORK/none" && fail "no folder was verified"
check "$WORK/src" && fail "a folder that is no cache was verified"
exit 0
