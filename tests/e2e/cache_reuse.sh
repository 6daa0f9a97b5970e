#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A cache folder keeps samples between mounts, also after SIGKILL, and is not used for a data set
# that is another.
. "$(dirname "$0")/../lib/mount.sh"
n=300
dataset "$WORK/src" $n 40000 4 8
d=$(find "$WORK/src" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
# No epoch after the first: what is fetched is fetched once.
o="seed=3,sampler=torch-distributed,index=imagefolder,ram=1M,staging=4M,free=0,cache=$WORK/cache:200M"
orders "$WORK/src" "$o" 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
slow_start "$WORK/src" "$WORK/pfs" latency=200 cache=60

same() {
	reader "$WORK/mnt" "$WORK/order" --compute-us 300 >/dev/null || fail "$1: the reader failed"
	[ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "$1: not the source's bytes"
}
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "first mount"
umount_clean "$WORK/mnt"
[ "$(du -sb "$WORK/cache" | cut -f1)" -ge $((d * 8 / 10)) ] || fail "the cache is not filled: $(du -sb "$WORK/cache")"
within 60 "$CLAIRFS" verify "$WORK/cache" || fail "verify"

slow reset
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "second mount"
say "second mount: $(slow_count bytes) bytes from the source, of $d"
[ "$(slow_count bytes)" -le $((d / 4)) ] || fail "the cache was not used again"
pid=$(daemon_pid "$WORK/mnt")
kill -KILL "$pid"
wait_for 10 gone "$pid"
umount -l "$WORK/mnt"

slow reset
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "after SIGKILL"
say "after SIGKILL: $(slow_count bytes) bytes from the source"
[ "$(slow_count bytes)" -le $((d / 4)) ] || fail "the cache was lost by SIGKILL"
umount_clean "$WORK/mnt"
within 60 "$CLAIRFS" verify "$WORK/cache" || fail "verify after SIGKILL"

# The same names and sizes with other bytes and times: nothing of the old may be served.
for f in "$WORK"/src/class000/*; do
	head -c "$(stat -c %s "$f")" /dev/urandom >"$f.new"
	touch -d '2001-02-03' "$f.new"
	mv "$f.new" "$f"
done
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
slow_stop
slow_start "$WORK/src" "$WORK/pfs" latency=200 cache=60
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$o"
same "another data set"
umount_clean "$WORK/mnt"
