#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Several ranks of a job open through one mount that is told nothing: their environment says which they
# are, even of those that come late; without it they are found by what they open.
. "$(dirname "$0")/../lib/mount.sh"
python=/usr/bin/python3
"$python" -c 'import numpy, torch' 2>/dev/null || skip "no torch for $python"
export HOME=$WORK/home XDG_CACHE_HOME=$WORK/home/cache
mkdir -p "$XDG_CACHE_HOME"
unset RANK WORLD_SIZE LOCAL_RANK
mounts=0
dataset "$WORK/src" 2400 1500 6 4
(cd "$WORK/src" && find . -type f -printf '%P\n' | LC_ALL=C sort) >"$WORK/list"
first() { status "$mnt" ".streams[0].$1"; }

# start WORLD RANK KEY=VALUE…: a rank in the background; its sums go to $WORK/rank-RANK.
start() {
	local world=$1 rank=$2; shift 2
	within 300 "$python" "$TOP/tests/lib/torch_loader.py" "$mnt" "$WORK/list" distributed \
		world=$world rank=$rank "$@" >"$WORK/rank-$rank" 2>>"$WORK/torch.log" </dev/null &
	pids+=($!)
	started $!
}
finish() {
	local pid
	for pid in "${pids[@]}"; do wait "$pid" || fail "a rank gave $?"; done
}
# The ranks' sums of each epoch, as the source has them.
same() { # same WORLD RANK…
	local world=$1 r; shift
	for r in "$@"; do
		within 240 "$python" "$TOP/tests/lib/torch_loader.py" "$WORK/src" "$WORK/list" distributed \
			world=$world rank=$r workers=0 epochs=3 2>>"$WORK/torch.log" |
			cmp - "$WORK/rank-$r" || fail "rank $r: not the source's bytes"
	done
}
begin() {
	rm -rf "$XDG_CACHE_HOME"/*
	mnt=$WORK/mnt-$((++mounts)) pids=()
	mount_clairfs "$WORK/src" "$mnt" -o ram=64M,staging=32M
}
# end MOST: what was found; of the last epoch's opens at most so many are not known.
end() {
	finish
	first order | jq -c .
	want "found" [ "$(first order.how)" = found ]
	want "seed 0" [ "$(first order.seed)" = 0 ]
	[ "$(first 'epochs[] | select(.epoch == 2) | .unpredicted')" -le "$1" ] ||
		fail "unpredicted: $(first epochs)"
	umount_clean "$mnt"
}

# Two of four ranks; the second one comes when the order has been found.
how() { [ "$(first order.how)" = "$1" ]; }
ranks() { [ "$(first 'order.ranks | join(",")')" = "$1" ]; }
begin
RANK=3 WORLD_SIZE=4 start 4 3 epochs=3 us=10000 workers=2 begin="$WORK/go"
RANK=1 WORLD_SIZE=4 start 4 1 epochs=3 us=10000 workers=2
wait_for 60 how found || fail "one rank: not found: $(status "$mnt" .discovery)"
want "its rank" ranks 1
touch "$WORK/go"
wait_for 60 ranks 1,3 || fail "the other rank: $(first order)"
want "it was not found anew" [ "$(first order.opens_to_find)" -le 200 ]
end 24 # 2 %
same 4 1 3

# The same, but nothing says who they are.
begin
start 4 1 epochs=3 us=5000 workers=2 begin="$WORK/both"
start 4 3 epochs=3 us=5000 workers=2 begin="$WORK/both"
wait_for 120 test -e "$WORK/both.1" -a -e "$WORK/both.3" || fail "the loaders do not start"
touch "$WORK/both"
wait_for 120 how found || fail "no environment: not found: $(status "$mnt" .discovery)"
end 120
same 4 1 3
