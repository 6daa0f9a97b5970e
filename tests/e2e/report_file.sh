#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# --report FILE of a run: whole after an ordinary end, with the reason after the daemon's death.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 100 3000 2 1
o=seed=3,sampler=torch-distributed,ram=16M
within 60 "$CLAIRFS" run "$WORK/src" -o $o --quiet --report "$WORK/good.json" -- sh -c "cat '$WORK/src'/*/* >/dev/null; exit 7" \
	2>>"$WORK/run.log"
[ $? = 7 ] || fail "the command's exit status"
[ "$(json "$WORK/good.json" .samples)" = 100 ] || fail "the report of a run"
[ "$(json "$WORK/good.json" .error)" = null ] || fail "an ordinary end is told as an error"

# A file of an earlier run is not taken for this one's.
cp "$WORK/good.json" "$WORK/dead.json"
within 60 "$CLAIRFS" run "$WORK/src" -o $o --report "$WORK/dead.json" -- sh -c "
	until [ -e '$WORK/killed' ]; do sleep 0.05; done; cat '$WORK/src'/*/* | wc -c >'$WORK/bytes'; exit 5" \
	2>"$WORK/err" &
run=$!
started $run
daemon_of() { "$CLAIRFS" status --json 2>/dev/null | jq -re .process.pid >"$WORK/pid" && [ -s "$WORK/pid" ]; }
wait_for 30 daemon_of || fail "the run's daemon is in no status"
kill -KILL "$(cat "$WORK/pid")"
wait_for 10 gone "$(cat "$WORK/pid")" || fail "the daemon outlived SIGKILL"
touch "$WORK/killed"
wait $run
[ $? = 5 ] || fail "the command's exit status after the daemon's death: $(cat "$WORK/err")"
json "$WORK/dead.json" . >/dev/null || fail "the report is no JSON"
[ "$(json "$WORK/dead.json" .source)" = "$WORK/src" ] || fail "the report does not name the source"
[ "$(json "$WORK/dead.json" .version)" = "$("$CLAIRFS" --version | grep -o '[0-9][0-9.]*')" ] ||
	fail "the version in the report: $(json "$WORK/dead.json" .version)"
json "$WORK/dead.json" .error | grep -q 'died' || fail "the report does not say what went wrong"
[ "$(json "$WORK/dead.json" .samples)" = null ] || fail "the earlier run's report is still there"
exit 0
