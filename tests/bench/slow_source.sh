#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/bench/slow_source.sh: the first epoch behind a slow source, readers asking for less and for
# more than it gives; a wrong seed beside a plain pass-through mount; daemon CPU of later epochs;
# an idle daemon. Prints ratios of one run.
[ -n "${WORK:-}" ] || . "$(dirname "$0")/../lib/mount.sh"
n=5000 opt=seed=42,sampler=torch-distributed,index=imagefolder
dataset "$WORK/data" $n 100000 20 1
d=$(find "$WORK/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
orders "$WORK/data" $opt 0 2 >"$WORK/order"
awk 'NF { print } !NF { exit }' "$WORK/order" >"$WORK/order0"
bw=100 # MB/s
slow_start "$WORK/data" "$WORK/pfs" latency=500 cache=60 bandwidth=${bw}M

echo
mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$opt,ram=1G,staging=256M"
us=$((d / n * 100 / (bw * 80))) # 80 % of what it gives
"$LIB/reader" "$WORK/mnt" "$WORK/order0" --compute-us $us >"$WORK/less"
say "first epoch, readers ask for 80 % of the source's bandwidth:"
jq -r '"  stall \(.stall_s * 1000 | round) ms of \(.seconds) s, \(.stall_s / .seconds * 10000 | round / 100) %"' "$WORK/less"
wait_for 20 status_is "$WORK/mnt" '[.streams[0].epochs[].opens] | add' -ge $n
cpu0=$(status "$WORK/mnt" .process.cpu_s)
"$LIB/reader" "$WORK/mnt" "$WORK/order" >"$WORK/later" # epochs 1 and 2 follow
cpu1=$(status "$WORK/mnt" .process.cpu_s)
awk -v a="$cpu0" -v b="$cpu1" -v n="$n" 'BEGIN { printf "  daemon CPU of epochs that are in RAM: %.1f us a sample\n", (b - a) * 1e6 / n / 3 }'
cpu0=$(status "$WORK/mnt" .process.cpu_s)
sleep 60
cpu1=$(status "$WORK/mnt" .process.cpu_s)
awk -v a="$cpu0" -v b="$cpu1" 'BEGIN { printf "  idle daemon: %.3f CPU s in 60 s, two status requests included\n", b - a }'
umount_clean "$WORK/mnt"

mount_clairfs "$WORK/pfs" "$WORK/mnt" -o "$opt,ram=1G,staging=64M"
"$LIB/reader" "$WORK/mnt" "$WORK/order0" --threads 4 >"$WORK/more"
say "first epoch, readers ask for all they can get:"
jq -r --argjson bw $bw '"  \(.mb_s) MB/s, \(.mb_s / $bw * 1000 | round / 1000) of the source'"'"'s"' "$WORK/more"
umount_clean "$WORK/mnt"

say "wrong seed against bindfs, files/s:"
if command -v bindfs >/dev/null; then
	median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
	for source in "$WORK/pfs" "$WORK/data"; do
		rounds=5
		[ "$source" = "$WORK/pfs" ] && rounds=1
		: >"$WORK/ratios"
		for ((i = 0; i < rounds; i++)); do
			"$LIB/reader" "$WORK/data" "$WORK/order0" >/dev/null
			mkdir -p "$WORK/bind"
			bindfs "$source" "$WORK/bind"
			"$LIB/reader" "$WORK/bind" "$WORK/order0" >"$WORK/plain"
			umount "$WORK/bind"
			mount_clairfs "$source" "$WORK/mnt" -o "$opt,seed=7,ram=16M,staging=16M"
			"$LIB/reader" "$WORK/mnt" "$WORK/order0" >"$WORK/wrong"
			umount_clean "$WORK/mnt"
			a=$(jq .files_s "$WORK/wrong") b=$(jq .files_s "$WORK/plain")
			awk -v a="$a" -v b="$b" 'BEGIN { print a / b }' >>"$WORK/ratios"
		done
		say "  source $([ "$source" = "$WORK/pfs" ] && echo slow || echo 'in memory'): median of $rounds $(median <"$WORK/ratios") ($(tr '\n' ' ' <"$WORK/ratios"))"
	done
else
	say "  skipped: no bindfs"
fi
slow_stop

say "a catalog of many entries: mount with a saved catalog against find"
icons=/usr/share/icons/Papirus
if [ -d $icons ]; then
	mount_clairfs $icons "$WORK/mnt" -o catalog="$WORK/catalog"
	umount_clean "$WORK/mnt"
	find $icons -printf '' # in memory
	a=$({ TIMEFORMAT=%R; time "$CLAIRFS" mount $icons "$WORK/mnt" -o catalog="$WORK/catalog" </dev/null >>"$LOG" 2>&1; } 2>&1)
	MOUNTED+=("$WORK/mnt")
	b=$({ TIMEFORMAT=%R; time find $icons -printf '%s' >/dev/null; } 2>&1)
	say "  mount $a s, find $b s ($(find $icons | wc -l) entries)"
	umount_clean "$WORK/mnt"
else
	say "  skipped: papirus-icon-theme is not installed"
fi
