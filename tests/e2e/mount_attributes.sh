#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The attributes of a mount: its report, order words that can be set, where a file is; those
# of the source go through. Names of the attributes are in no listing.
. "$(dirname "$0")/../lib/mount.sh"
n=60
dataset "$WORK/src" $n 20000 3 5
m=$WORK/mnt
one=$(list_of "$WORK/src" | head -n 1)

attribute() { # FILE NAME: prints the value
	python3 -c 'import os, sys; print(os.getxattr(*sys.argv[1:]).decode())' "$1" "$2"
}
set_attribute() { # FILE NAME VALUE
	python3 -c 'import os, sys; os.setxattr(sys.argv[1], sys.argv[2], sys.argv[3].encode())' \
		"$@" 2>"$WORK/err"
}
names() { python3 -c 'import os, sys; print(*os.listxattr(sys.argv[1]))' "$1"; }
seed_is() { [ "$(attribute "$m" user.clairfs.seed)" = "$1" ]; }

through=1
set_attribute "$WORK/src/$one" user.colour red || through=0
mount_clairfs "$WORK/src" "$m" -o seed=42,sampler=torch-distributed,ram=50M,staging=20M

[ $through = 0 ] || [ "$(attribute "$m/$one" user.colour)" = red ] ||
	fail "an attribute of the source is not there"
case " $(names "$m/$one") " in
*clairfs*) fail "a name of ours in the list of attributes" ;;
esac

attribute "$m" user.clairfs.stats >"$WORK/stats" || fail "no stats"
[ "$(json "$WORK/stats" .samples)" = $n ] || fail "the stats tell $(json "$WORK/stats" .samples) samples"
[ "$(wc -c <"$WORK/stats")" -lt 65536 ] || fail "the stats are too long for an attribute"

seed_is 42 || fail "the seed is $(attribute "$m" user.clairfs.seed)"
set_attribute "$m" user.clairfs.seed 7 || fail "the seed cannot be set: $(tail -n 1 "$WORK/err")"
seed_is 7 || fail "the seed that was set is not there"
set_attribute "$m" user.clairfs.seed abc && fail "a seed that is no number was taken"
seed_is 7 || fail "a seed that was refused has changed the seed"
set_attribute "$m" user.clairfs.colour red && fail "a word that is none was taken"

within 60 "$CLAIRFS" status "$m" --wait >/dev/null || fail "status --wait"
[ -n "$(attribute "$m/$one" user.clairfs.tier)" ] || fail "no tier"

# The order after the change is the new seed's: reading it, all opens are predicted.
orders "$WORK/src" seed=7,sampler=torch-distributed 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native" || fail "the source cannot be read"
reader "$m" "$WORK/order" || fail "the reader failed"
[ "$(jq -s '[.[].hash]' "$WORK/reader.out")" = "$(jq -s '[.[].hash]' "$WORK/native")" ] ||
	fail "not the source's bytes"
e='[.streams[0].epochs[] | .'
wait_for 30 status_is "$m" "${e}opens] | add" -ge $n || fail "opens were not seen"
status_is "$m" "${e}unpredicted] | add" -eq 0 || fail "the new seed is not followed"
umount_clean "$m"
