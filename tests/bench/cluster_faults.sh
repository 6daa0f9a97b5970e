#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/bench/cluster_faults.sh [RUNS] [LETTERS]: each failure of tests/lib/faults.sh RUNS times (10), at
# random moments of three epochs on four nodes, one of which it happens to. Prints for each: errors
# that the others' readers saw; nodes that read wrong bytes; what the slowest reader was held up
# longer than in the median run without a failure (median and most of the runs); what the source
# gave, as a share of the dataset; other things that were wrong. As root; half an hour.
# shellcheck source=tests/lib/mount.sh
. "$(dirname "$0")/../lib/mount.sh"
# shellcheck source=tests/lib/cluster.sh
. "$TOP/tests/lib/cluster.sh"
# shellcheck source=tests/lib/faults.sh
. "$TOP/tests/lib/faults.sh"
runs=${1:-10}
faults_begin 800
table=()
plain=0
row() { # LETTER: all runs of it
	local i before errors=0 bytes=0 source=0 stalls=() row sorted
	before=$FAULTS_WRONG
	for ((i = 0; i < runs; i++)); do
		faults "$1"
		read -ra row <<<"$FAULTS_ROW"
		errors=$((errors + row[0])) bytes=$((bytes + row[1])) stalls+=("${row[2]}")
		[ "${row[3]}" -le $source ] || source=${row[3]}
	done
	mapfile -t sorted < <(printf '%s\n' "${stalls[@]}" | sort -n)
	[ "$1" != 0 ] || plain=${sorted[runs / 2]}
	table+=("$(printf '%-32s %4d %6d %5d %7d %6d %7s %5d' "$FAULT_NAME" "$runs" $errors $bytes \
		$((sorted[runs / 2] - plain)) $((sorted[runs - 1] - plain)) \
		"$((source / 1000)).$(printf %03d $((source % 1000)))" $((FAULTS_WRONG - before)))")
}
for letter in 0 $(grep -o . <<<"${2:-abcdeEfgijkK}"); do row "$letter"; done
say
say "$(nproc) cores; without a failure the slowest reader was held up for $plain ms (median)"
say "                                              wrong   extra stall, ms  source  other"
say "failure                          runs errors  bytes  median   most  most/D  wrong"
printf '%s\n' "${table[@]}"
[ $FAULTS_WRONG = 0 ]
