#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# examples/quickstart.sh [--short]
# Installs what is needed (Debian 12, root or sudo), builds, puts a real data set (Debian's
# openclipart-png: 8,121 pictures in 22 folders) behind a slow file system, and reads it in
# shuffled epochs with PyTorch's DataLoader and DistributedSampler, twice: as it is, and through
# `clairfs run`. Prints a table and draws quickstart.png. --short: a part of the pictures.
set -u
exec </dev/null
top=$(cd "$(dirname "$0")/.." && pwd)
build=${CLAIRFS_BUILD:-$top/build/quickstart}
out=${QUICKSTART_OUT:-$top/build}
export LC_ALL=C.UTF-8 TERM=${TERM:-dumb}
# shellcheck source=tests/lib/packages.sh
. "$top/tests/lib/packages.sh"
die() { echo "quickstart: $*" >&2; exit 1; }

short=0 epochs=3 step_ms=25
case ${1:-} in
--short) short=1 epochs=2 ;;
'') ;;
*) echo "usage: examples/quickstart.sh [--short]" >&2; exit 2 ;;
esac

# A mount namespace of our own: whatever happens, nothing stays mounted.
if [ -z "${QUICKSTART_INSIDE:-}" ]; then
	install_packages "${build_packages[@]}" "${quickstart_packages[@]}" || die "packages are missing"
	echo "building in $build"
	{ [ -f "$build/build.ninja" ] || meson setup "$build" "$top"; } >"$top/.quickstart-build.log" 2>&1 &&
		ninja -C "$build" >>"$top/.quickstart-build.log" 2>&1 ||
		{ tail -n 30 "$top/.quickstart-build.log" >&2; rm -f "$top/.quickstart-build.log"; die "the build failed"; }
	rm -f "$top/.quickstart-build.log"
	[ -e /dev/fuse ] || { [ "$(id -u)" = 0 ] && { modprobe fuse || mknod /dev/fuse c 10 229; } 2>/dev/null; }
	export QUICKSTART_INSIDE=1
	if [ "$(id -u)" = 0 ]; then
		exec unshare -m --propagation private "$0" "$@"
	fi
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-quickstart.XXXXXX") || die "no temporary folder"
slow_pid=
cleanup() {
	[ -z "$slow_pid" ] || kill "$slow_pid" 2>/dev/null
	wait 2>/dev/null
	umount -l "$work/pfs" 2>/dev/null
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

echo "copying the pictures"
mkdir "$work/data" "$work/pfs"
clipart=/usr/share/openclipart/png
[ -d "$clipart" ] || clipart=$(dirname "$(dpkg -L openclipart-png | grep -m 1 '\.png$')")/..
if [ $short = 1 ]; then # every fourth picture of each class
	(cd "$clipart" && find . -name '*.png' | sort | awk 'NR % 4 == 0' >"$work/list" &&
		tar -chf - -T "$work/list" | tar -xf - -C "$work/data") || die "no pictures in $clipart"
else
	cp -rL "$clipart/." "$work/data" || die "no pictures in $clipart"
fi
files=$(find "$work/data" -type f | wc -l)
bytes=$(find "$work/data" -type f -printf '%s\n' | awk '{ s += $1 } END { printf "%d", s }')
echo "$files files, $((bytes / 1000000)) MB"

# 2 ms an operation; 15 MB/s for one client, 120 MB/s when many ask at once.
"$build/tests/lib/slowfs" "$work/data" "$work/pfs" --control "$work/ctl" \
	latency=2000 cache=60 bandwidth=1:15M,4:50M,16:120M &
slow_pid=$!
for _ in $(seq 100); do mountpoint -q "$work/pfs" && break; sleep 0.1; done
mountpoint -q "$work/pfs" || die "the slow file system did not come up"
ask() { timeout 20 "$build/tests/lib/slowfs" --ask "$work/ctl" "$@"; }

# Debian's Python has Debian's PyTorch, whatever else is in PATH.
export PYTHONWARNINGS=ignore
python=${PYTHON:-/usr/bin/python3}
train=("$python" "$top/examples/train.py" "$work/pfs" --epochs $epochs --workers 4 --batch 32
	--seed 42 --step-ms $step_ms)
echo "reading from the slow file system"
timeout 600 "${train[@]}" --log "$work/direct.json" || die "training from the slow file system failed"
ask stats >"$work/direct.stats"
ask reset
echo "reading through clairfs run"
timeout 600 "$build/tools/clairfs" run "$work/pfs" \
	-o "seed=42,sampler=torch-distributed,index=imagefolder,workers=4,batch=32,ram=2G" \
	--report "$work/report.json" -- "${train[@]}" --log "$work/clairfs.json" ||
	die "training through clairfs failed"
ask stats >"$work/clairfs.stats"

[ "$(jq -c .check "$work/direct.json")" = "$(jq -c .check "$work/clairfs.json")" ] ||
	die "the two did not read the same bytes"

# What each epoch took from the slow file system, and the least that any cache could: all once, then nothing.
bound=$(jq '.pfs_bound_bytes' "$work/report.json")
least() { awk -v e="$1" -v d="$bytes" -v b="$bound" -v n=$epochs 'BEGIN { printf "%.1f", (e == 0 ? d : n > 1 ? (b - d) / (n - 1) : 0) / 1e6 }'; }
direct_mb=$(jq -r ".bytes / $epochs / 1e6 * 10 | round / 10" "$work/direct.stats")
echo
echo "                     files/s    MB/s  wait s stall s  staged   late  missed  PFS MB (bound)"
jq -r '["direct", .epoch, .files_s, .mb_s, .wait_s, "-", "-", "-", "-", "'"$direct_mb"'"] | @tsv' "$work/direct.json" >"$work/rows"
jq -r --slurpfile r "$work/report.json" '. as $e | ($r[0].streams[0].epochs[]? | select(.epoch == $e.epoch))
	// {} | ["clairfs", $e.epoch, $e.files_s, $e.mb_s, $e.wait_s, (.stall_s * 1000 | round / 1000), .staged, .late, .missed,
	(.pfs_bytes / 1e5 | round / 10)] | @tsv' \
	"$work/clairfs.json" >>"$work/rows"
awk -F '\t' -v first="$(least 0)" -v later="$(least 1)" '{ printf "%-8s epoch %d  %9.0f %7.1f %7.2f %7s %7s %6s %7s %7s (%s)\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $2 ? later : first }' "$work/rows"
echo "wait: of the training loop for its loader; stall: of reads in the mount; staged: read without a request"
echo
printf 'bytes from the slow file system: direct %d, clairfs %d (lower bound %s)\n' \
	"$(jq .bytes "$work/direct.stats")" "$(jq .bytes "$work/clairfs.stats")" "$bound"
printf 'its opens of files: direct %d, clairfs %d, for %d files\n' \
	"$(jq .open "$work/direct.stats")" "$(jq .open "$work/clairfs.stats")" "$files"

mkdir -p "$out"
jq -r '[.epoch, .files_s] | @tsv' "$work/direct.json" >"$work/direct.tsv"
jq -r '[.epoch, .files_s] | @tsv' "$work/clairfs.json" >"$work/clairfs.tsv"
if gnuplot >/dev/null 2>"$work/gnuplot.log" <<PLOT
set terminal pngcairo size 800,480
set output '$out/quickstart.png'
set title '$files pictures from a slow file system, DataLoader with 4 workers'
set style data histogram
set style fill solid 0.7
set ylabel 'files/s'
set xlabel 'epoch'
set yrange [0:*]
set key left top
plot '$work/direct.tsv' using 2:xtic(1) title 'direct', '$work/clairfs.tsv' using 2 title 'clairfs run'
PLOT
then
	echo "drawn: $out/quickstart.png"
else
	echo "no picture: $(tail -n 1 "$work/gnuplot.log")"
fi
predicted=$(jq '[.streams[0].epochs[]? | .staged + .late] | add // 0' "$work/report.json")
opens=$(jq '[.streams[0].epochs[]? | .opens] | add // 0' "$work/report.json")
[ "$opens" -ge "$((files * epochs * 99 / 100))" ] || die "clairfs saw $opens opens of $((files * epochs))"
[ "$((predicted * 100))" -ge "$((opens * 95))" ] || die "only $predicted of $opens opens were predicted in time"
