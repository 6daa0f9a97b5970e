#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A seed that is set while the mount looks for the order is the order from then on, whatever the
# opens before it look like.
. "$(dirname "$0")/../lib/mount.sh"
export XDG_CACHE_HOME=$WORK/xdg
dataset "$WORK/src" 400 3000 4 1
mount_clairfs "$WORK/src" "$WORK/mnt" -o ram=64M
list_of "$WORK/src" >"$WORK/list"
head -n 20 "$WORK/list" >"$WORK/first"
reader "$WORK/mnt" "$WORK/first" >/dev/null || fail "reading the first files"
within 20 "$CLAIRFS" set "$WORK/mnt" seed=12 || fail "set gave $?"
orders "$WORK/src" seed=12,sampler=torch-distributed 0 1 >"$WORK/order"
reader "$WORK/mnt" "$WORK/order" --compute-us 1000 >/dev/null || fail "reading in the order that was set"
[ "$(status "$WORK/mnt" .streams[0].order.how)" = given ] || fail "how: $(status "$WORK/mnt" '.streams[0].order|tostring')"
[ "$(status "$WORK/mnt" .streams[0].order.seed)" = 12 ] || fail "another seed"
status_is "$WORK/mnt" '.streams[0].epochs[-1].staged' -ge 390 || fail "$(status "$WORK/mnt" '.streams[0].epochs|tostring')"
umount_clean "$WORK/mnt"
