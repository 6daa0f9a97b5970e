#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A few of the recipes in tests/recipes: what discovery makes of their opens when it is told nothing.
. "$(dirname "$0")/../lib/mount.sh"
command -v xz >/dev/null || skip "xz is not installed"
export TMPDIR=$WORK
# imagenet over 4 ranks, timm over 2, open_clip's shards, Ultralytics, Lightning, CosmoFlow; nnU-Net, which
# nobody can know.
recipes=(1 5 14 16 27 49 23)
run() { LIMIT=120 LEAST=6 within 400 "$TOP/tests/recipes/run.sh" "$BUILD" "${recipes[@]}" 2>&1; }
# The readers' pace is the machine's: one that did not think in time may do so the second time. A false
# answer is one whenever it comes.
run | tee "$WORK/first"
[ "${PIPESTATUS[0]}" = 0 ] && exit 0
grep -q ' 0 false answers' "$WORK/first" || fail "a false answer"
run || fail "fewer were predicted than should be"
