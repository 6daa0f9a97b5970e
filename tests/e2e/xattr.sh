#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Words that are set while mounted, with several streams: the root speaks for the stream of the
# common words; what is set is read back; what is wrong is EINVAL and changes nothing; with ro
# the kernel refuses, and `clairfs set` does the same; others may not.
. "$(dirname "$0")/../lib/mount.sh"
mkdir "$WORK/src"
dataset "$WORK/src/train" 60 20000 3 5
dataset "$WORK/src/val" 30 20000 3 6
o=sampler=torch-distributed,seed=3,stream=val:sampler=sequential,ram=50M,staging=20M
m=$WORK/mnt
get() { python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], "user.clairfs." + sys.argv[2]).decode())' "$@" 2>/dev/null; }
put() { # FOLDER WORD VALUE: prints the errno's name, nothing when it went well
	python3 -c 'import os, sys, errno
try: os.setxattr(sys.argv[1], "user.clairfs." + sys.argv[2], sys.argv[3].encode())
except OSError as e: print(errno.errorcode[e.errno])' "$@"
}
streams() { status "$m" '[.streams[] | [.path, .order.sampler, .order.seed]] | sort | @json'; }
same() { [ "$2" = "$3" ] || fail "$1: $2, not $3"; }

mount_clairfs "$WORK/src" "$m" -o $o
same "set on the root" "$(put "$m" seed 9)" ""
same "the root's seed" "$(get "$m" seed)" 9
same "the stream's seed" "$(get "$m/train" seed)" 9
same "streams" "$(streams)" '[["train","torch-distributed",9],["val","sequential",3]]'
same "set on a stream" "$(put "$m/val" sampler torch-random)" ""
same "streams" "$(streams)" '[["train","torch-distributed",9],["val","torch-random",3]]'
same "set the epoch" "$(put "$m" epoch 3)" ""
same "the epoch" "$(get "$m/train" epoch)" 3
for bad in "seed=" seed=abc seed=99999999999999999999999 seed=1,2 epoch=-1 epoch=x sampler=nosuch \
	world=0 ranks=5 nosuch=1 stats=1 ram=1; do
	same "$bad" "$(put "$m" "${bad%%=*}" "${bad#*=}")" EINVAL
done
same "streams after what was refused" "$(streams)" '[["train","torch-distributed",9],["val","torch-random",3]]'
one=$m/$(list_of "$WORK/src" | head -n 1)
case $(put "$one" seed 4) in ENOTSUP | EOPNOTSUPP) ;; *) fail "a file's seed was set" ;; esac
within 30 "$CLAIRFS" set "$m/val" seed=8 || fail "clairfs set"
same "the seed of clairfs set" "$(get "$m/val" seed)" 8
within 30 "$CLAIRFS" set "$m" seed=zz 2>"$WORK/err"
same "status of a wrong value" $? 2
same "lines about it" "$(wc -l <"$WORK/err")" 1

# Opens follow what was set: epoch 3 of seed 9.
orders "$WORK/src/train" sampler=torch-distributed,seed=9 3 3 | sed 's,^.,train/&,' >"$WORK/order"
reader "$m" "$WORK/order" >/dev/null || fail "the reader failed"
e='[.streams[] | select(.path == "train").epochs[] | '
wait_for 30 status_is "$m" "${e}.opens] | add" -ge 60 || fail "opens were not seen"
same "unpredicted opens" "$(status "$m" "${e}.unpredicted] | add")" 0
same "the epoch that is read" "$(status "$m" "${e}select(.opens > 0).epoch] | @json")" '[3]'
umount_clean "$m"

mount_clairfs "$WORK/src" "$m" -o $o,ro
same "set with ro" "$(put "$m" seed 5)" EROFS
within 30 "$CLAIRFS" set "$m" seed=4 || fail "clairfs set with ro"
same "seed with ro" "$(get "$m" seed)" 4
umount_clean "$m"

if [ "$(id -u)" = 0 ] && command -v runuser >/dev/null; then
	chmod 777 "$WORK/src" # or the bits would refuse it before we do
	mount_clairfs "$WORK/src" "$m" -o $o,allow_other
	runuser -u nobody -- python3 -c 'import os, sys
try: os.setxattr(sys.argv[1], "user.clairfs.seed", b"5")
except PermissionError: sys.exit(0)
sys.exit(1)' "$m" || fail "another user could set the seed"
	same "seed after another user" "$(get "$m" seed)" 3
	umount_clean "$m"
fi
exit 0
