#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What happens to a job on four nodes: processes, nodes and mpirun that are killed or stopped, links
# that are down or slow, a cache folder that is full. The others' readers get the right bytes and no
# error; the rest is told in lib/faults.sh. Stalls are only limited loosely here: a busy machine
# makes them (bench/cluster_faults.sh measures them).
# shellcheck source=tests/lib/mount.sh
. "$(dirname "$0")/../lib/mount.sh"
# shellcheck source=tests/lib/cluster.sh
. "$TOP/tests/lib/cluster.sh"
FAULT_US=3000 FAULTS_ALLOWED=15000 FAULT_STOP=4
# shellcheck source=tests/lib/faults.sh
. "$TOP/tests/lib/faults.sh"
faults_begin 600
faults "${1:-abcdfgjk}" at=0.4
[ $FAULTS_WRONG = 0 ] || fail "$FAULTS_WRONG things were wrong"
