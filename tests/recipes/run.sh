#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run.sh BUILD [NUMBER…]: replays the recipes' traces (all of them: some minutes). The last line says how
# many are predicted. Fails when fewer than $LEAST are (0: nothing is demanded), or an answer is false.
here=$(cd "$(dirname "$0")" && pwd)
build=${1:?the build folder}
shift
command -v xz >/dev/null || { echo "no xz" >&2; exit 77; }
replay=$build/tests/lib/recipe_replay
[ -x "$replay" ] || { echo "$replay is not there" >&2; exit 2; }
lines=$(mktemp) || exit 2
trap 'rm -f "$lines"' EXIT

traces() {
	local n
	[ $# = 0 ] && { printf '%s\n' "$here"/*.xz; return; }
	for n in "$@"; do printf '%s\n' "$here/$(printf %02d "$((10#$n))")"-*.xz; done
}
traces "$@" | while read -r trace; do
	xz -dc "$trace" | timeout "${LIMIT:-600}" nice "$replay" || [ $? = 1 ] ||
		echo "${trace##*/} ? ? FAILED"
done | tee "$lines"
awk -v least="${LEAST:-0}" '
	$2 == "E" { strange++; false_answers += $4 == "FALSE" }
	$2 != "E" { all++; good += $4 == "ok" }
	$4 == "FAILED" { broken++ }
	/second=[0-9]+ / { again++ }
	END {
		printf "%d of %d predicted; %d unpredictable, %d false answers; second run known: %d of %d\n",
			good, all, strange, false_answers, again, all + strange
		exit !(good >= least && !false_answers && !broken)
	}' "$lines"
