#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/bench/one_node.sh [FILES]: what a staged read costs, beside other file systems, and what a
# slow source gives. Prints ratios of one run; nothing fails by time. As root, after a build in
# CLAIRFS_BUILD. Rows that cannot run here are said to be skipped.
. "$(dirname "$0")/../lib/mount.sh"
n=${1:-5000} opt=seed=42,sampler=torch-distributed,index=imagefolder
[ "$(id -u)" = 0 ] || skip "needs root"
mkdir "$WORK/ram"
mount -t tmpfs -o size=4G bench "$WORK/ram" && MOUNTED+=("$WORK/ram") || skip "no tmpfs"
dataset "$WORK/ram/source" "$n" 100000 50 1
d=$(du -sb "$WORK/ram/source" | cut -f1)
# Three epochs' orders; the others read the same.
orders "$WORK/ram/source" $opt 0 2 >"$WORK/order"
say "$n files, $((d / 1000000)) MB, $(uname -r), $(nproc) cores"
"$LIB/reader" "$WORK/ram/source" "$WORK/order" >/dev/null # memory that was never used costs more

us() { jq -s ".[$1].seconds * 1e6 / .[$1].files * 100 | round / 100" "$2"; }
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { if (b > 0) printf "%.2f", a / b; else printf "-" }'; }
measure() { # NAME ROOT THREADS: three epochs, the first of them cold
	"$LIB/reader" "$2" "$WORK/order" --threads "$3" >"$WORK/res.$1.$3" || say "$1: the reader failed"
}
copy_to() { cp -r "$WORK/ram/source" "$1" && sync; }

echo
say "staged open + read + close, us a file: first epoch, second, third"
for t in 1 4; do
	rm -rf "$WORK/ram/copy"
	copy_to "$WORK/ram/copy"
	measure tmpfs "$WORK/ram/copy" $t
	rm -rf "$WORK/ram/copy"

	if truncate -s 2G "$WORK/ram/ext4.img" 2>/dev/null && mkfs.ext4 -q "$WORK/ram/ext4.img" 2>/dev/null &&
		mkdir -p "$WORK/ext4" && mount -o loop "$WORK/ram/ext4.img" "$WORK/ext4" 2>/dev/null; then
		copy_to "$WORK/ext4/copy"
		measure ext4 "$WORK/ext4/copy" $t
		umount "$WORK/ext4"
		rm -f "$WORK/ram/ext4.img"
	fi

	example=/usr/share/doc/libfuse3-dev/examples/passthrough_ll.c
	if [ -f $example ] && { [ -x "$WORK/passthrough_ll" ] ||
		gcc -O2 -o "$WORK/passthrough_ll" -I"${example%/*}" $example $(pkg-config --cflags --libs fuse3) 2>/dev/null; }; then
		mkdir -p "$WORK/pll"
		"$WORK/passthrough_ll" -o source="$WORK/ram/source",cache=always,timeout=1000 -f "$WORK/pll" 2>/dev/null &
		started $!
		wait_for 10 mountpoint -q "$WORK/pll" && measure passthrough_ll "$WORK/pll" $t
		umount "$WORK/pll"
	fi
	if command -v bindfs >/dev/null; then
		mkdir -p "$WORK/bind"
		bindfs "$WORK/ram/source" "$WORK/bind" && measure bindfs "$WORK/bind" $t
		umount "$WORK/bind"
	fi

	mount_clairfs "$WORK/ram/source" "$WORK/mnt" -o "$opt,ram=3G,staging=3G"
	within 60 "$CLAIRFS" status "$WORK/mnt" --wait >/dev/null
	measure clairfs "$WORK/mnt" $t
	cp "$WORK/res.clairfs.$t" "$WORK/res.staged.$t"
	status "$WORK/mnt" '{epochs: .streams[0].epochs, fuse, process} | tostring' >"$WORK/status.$t"
	umount_clean "$WORK/mnt"
	for name in tmpfs ext4 passthrough_ll bindfs clairfs; do
		f=$WORK/res.$name.$t
		[ -s "$f" ] || { printf '  %d thread(s)  %-16s skipped: cannot run here\n' $t $name; continue; }
		printf '  %d thread(s)  %-16s %7s %7s %7s   against clairfs: %s %s\n' $t $name "$(us 0 "$f")" \
			"$(us 1 "$f")" "$(us 2 "$f")" \
			"$(ratio "$(us 0 "$f")" "$(us 0 "$WORK/res.clairfs.$t")")" \
			"$(ratio "$(us 2 "$f")" "$(us 2 "$WORK/res.clairfs.$t")")"
	done
	jq -c '[.epochs[] | {epoch, opens, staged, late, missed}]' "$WORK/status.$t" 2>/dev/null |
		sed 's/^/  /'
	jq -r '"  FUSE requests a staged sample: open \(.fuse.open), read \(.fuse.read), lookup \(.fuse.lookup), of \([.epochs[].opens] | add) opens"' "$WORK/status.$t"
done

echo
say "moving window: staging 64M, data in the arena (filled by epoch 0), 2 readers that take 200 us a file"
awk 'NF { print } !NF { exit }' "$WORK/order" >"$WORK/order.0"
awk 'later { print } !NF { later = 1 }' "$WORK/order" >"$WORK/order.1"
mount_clairfs "$WORK/ram/source" "$WORK/mnt" -o "$opt,ram=3G,staging=64M,keep=arena" 2>/dev/null
"$LIB/reader" "$WORK/mnt" "$WORK/order.0" --threads 2 --compute-us 1200 >/dev/null
requests() { status "$WORK/mnt" '[.fuse[]] | add'; } # of readers; our own are apart
cpu0=$(status "$WORK/mnt" .process.cpu_s) requests0=$(requests)
"$LIB/reader" "$WORK/mnt" "$WORK/order.1" --threads 2 --compute-us 200 >"$WORK/window"
cpu1=$(status "$WORK/mnt" .process.cpu_s) requests1=$(requests)
jq -r '"  \(.mb_s | round) MB/s, stall \(.stall_s * 1000 * 100 | round / 100) ms"' "$WORK/window"
status "$WORK/mnt" '.streams[0].epochs[1:] | "  missed \([.[].missed] | add), late \([.[].late] | add) of \([.[].opens] | add)"'
awk -v a="$cpu0" -v b="$cpu1" -v n="$n" 'BEGIN { printf "  daemon CPU: %.1f us a sample\n", (b - a) * 1e6 / n / 2 }'
awk -v a="$requests0" -v b="$requests1" -v n="$n" 'BEGIN { printf "  FUSE requests of any kind a sample, after drops: %.4f\n", (b - a) / n / 2 }'
umount_clean "$WORK/mnt"
rm -rf "$WORK/ram/source"

echo
say "the order of 1,281,167 samples: clairfs order with its start, against torch.randperm without"
python=${PYTHON:-/usr/bin/python3} # Debian's has Debian's torch
if "$python" -c 'import torch' 2>/dev/null; then
	o="--n 1281167 -o sampler=torch-distributed,seed=42"
	"$CLAIRFS" order $o >"$WORK/ours"
	a=$({ TIMEFORMAT=%R; time "$CLAIRFS" order $o --limit 1 >/dev/null; } 2>&1)
	b=$("$python" -c 'import time, torch
g = torch.Generator()
g.manual_seed(42)
t = time.monotonic()
p = torch.randperm(1281167, generator=g).tolist()
print("%.3f" % (time.monotonic() - t))
open("'"$WORK/theirs"'", "w").write("\n".join(map(str, p)) + "\n")')
	cmp -s "$WORK/ours" "$WORK/theirs" && same=the || same="NOT THE"
	say "  $same same; clairfs $a s, torch $b s: $(ratio "$b" "$a")"
	rm -f "$WORK/ours" "$WORK/theirs"
else
	say "  skipped: no torch"
fi

. "$TOP/tests/bench/slow_source.sh"
