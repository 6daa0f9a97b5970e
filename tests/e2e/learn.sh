#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A real torch loader over a list that the mount does not know: it is learnt in the first epoch, and
# predicted from the second one on; with pictures and masks, and with files that are opened thrice. A
# list that lies beside the data, and sorted pictures with their masks, are known at once.
. "$(dirname "$0")/../lib/mount.sh"
python=/usr/bin/python3
"$python" -c 'import numpy, torch' 2>/dev/null || skip "no torch for $python"
export HOME=$WORK/home XDG_CACHE_HOME=$WORK/home/cache
mkdir -p "$XDG_CACHE_HOME"
mounts=0
n=600
dataset "$WORK/src" 800 2000 6 4
list_of "$WORK/src" | shuf --random-source=<(yes 3) | head -n $n >"$WORK/list"

torch() { # torch MNT LIST WORDS…
	within 240 "$python" "$TOP/tests/lib/torch_loader.py" "$@" 2>>"$WORK/torch.log"
}
# The sums over one epoch of LIST, whatever its order, as the source has them.
native() { # native SOURCE LIST
	[ -s "$2.native" ] || torch "$1" "$2" sequential epochs=1 | cut -d' ' -f2 >"$2.native"
	[ -s "$2.native" ] || fail "the loader gave nothing"
}
same() { # same LIST: every epoch in $WORK/mounted has those
	[ "$(cut -d' ' -f2 "$WORK/mounted" | sort -u)" = "$(cat "$1.native")" ] ||
		fail "$1: not the source's bytes"
}
first() { status "$mnt" ".streams[0].$1"; }

# train SOURCE LIST FILES-A-PASS SAMPLER KEY=VALUE…: three epochs over a mount that is told nothing.
train() {
	local source=$1 list=$2 files=$3; shift 3
	rm -rf "$XDG_CACHE_HOME"/*
	native "$source" "$list"
	mnt=$WORK/mnt-$((++mounts)) # a daemon that still ends is not asked
	mount_clairfs "$source" "$mnt" -o ram=64M,staging=32M
	torch "$mnt" "$list" "$@" epochs=3 us=1000 >"$WORK/mounted" || fail "$*: the loader gave $?"
	same "$list"
	first order | jq -c .
	[ "$(first order.how)" = found ] || fail "$*: not learnt: $(status "$mnt" .discovery)"
	[[ $(first order.index) = list:* ]] || fail "$*: index $(first order.index)"
	# The third epoch is known from its first open to its last.
	[ "$(first 'epochs[] | select(.epoch == 2) | .opens')" = "$files" ] || fail "$*: opens"
	[ "$(first 'epochs[] | select(.epoch == 2) | .unpredicted')" = 0 ] || fail "$*: unpredicted"
	want "$*: it took more than half of the second epoch" \
		[ "$(first order.opens_to_find)" -le $((files * 3 / 2)) ]
	umount_clean "$mnt"
}

# early SOURCE LIST SAMPLER KEY=VALUE…: what a mount that is told nothing finds in half an epoch.
how() { [ "$(first order.how)" = "$1" ]; }
early() {
	local source=$1 list=$2; shift 2
	rm -rf "$XDG_CACHE_HOME"/*
	mnt=$WORK/mnt-$((++mounts)) # a daemon that still ends is not asked
	mount_clairfs "$source" "$mnt" -o ram=64M,staging=32M
	torch "$mnt" "$list" "$@" epochs=1 limit=220 >"$WORK/mounted" || fail "$*: the loader gave $?"
	wait_for 60 how found || fail "$*: not found: $(status "$mnt" .discovery)"
	first order | jq -c .
	native "$source" "$list"
	torch "$mnt" "$list" "$@" epochs=2 >"$WORK/mounted" || fail "$*: the loader gave $?"
	same "$list"
	[ "$(first 'epochs[] | select(.epoch == 1) | .unpredicted')" = 0 ] || fail "$*: unpredicted"
	umount_clean "$mnt"
}

train "$WORK/src" "$WORK/list" $n distributed workers=4
train "$WORK/src" "$WORK/list" $n shuffle seed=42 workers=0
train "$WORK/src" "$WORK/list" $n default seed=42 workers=2 opens=3

# Pictures and masks in folders of their own, two files a sample.
mkdir -p "$WORK/pairs/images" "$WORK/pairs/masks"
while read -r path; do
	stem=$(basename "${path%.*}")
	cp "$WORK/src/$path" "$WORK/pairs/images/$stem.jpg"
	head -c 300 "$WORK/src/$path" >"$WORK/pairs/masks/$stem.png"
done <"$WORK/list"
sed 's,.*/\(.*\)\..*,images/\1.jpg masks/\1.png,' "$WORK/list" | head -n 400 >"$WORK/list-of-pairs"
train "$WORK/pairs" "$WORK/list-of-pairs" 800 distributed workers=2

# The sorted pictures, each with its mask: known in the first epoch.
(cd "$WORK/pairs/images" && printf '%s\n' *) | sed 's,\(.*\)\..*,images/\1.jpg masks/\1.png,' >"$WORK/all-pairs"
early "$WORK/pairs" "$WORK/all-pairs" distributed workers=2

# A list that lies beside the data, with paths of another machine.
{ echo id,path,label; awk '{ print NR ",/data/elsewhere/" $0 "," NR % 3 }' "$WORK/list"; } >"$WORK/src/train.csv"
early "$WORK/src" "$WORK/list" distributed workers=2
