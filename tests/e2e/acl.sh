#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Data that an ordinary user may read only through an access control list, served by `run`: the
# bytes (also mapped, and by O_DIRECT), the ids, and the rights that the user really has.
. "$(dirname "$0")/../lib/mount.sh"
user=$(test_user) || exit 77
command -v setfacl >/dev/null || skip "no setfacl"
command -v runuser >/dev/null || skip "no runuser"
dataset "$WORK/src" 100 10000 4 8
getent group clairproj2 >/dev/null || groupadd clairproj2 || skip "no groupadd"
chown -R root:clairproj2 "$WORK/src"
find "$WORK/src" -type d -exec chmod 750 {} +
find "$WORK/src" -type f -exec chmod 640 {} +
id -nG "$user" | grep -qw clairproj2 && fail "$user is in the group"
o=seed=3,sampler=torch-distributed,index=imagefolder,ram=16M,staging=8M
orders "$WORK/src" $o 0 0 >"$WORK/order"
"$LIB/reader" "$WORK/src" "$WORK/order" >"$WORK/native"
chmod 644 "$WORK/order"
mkdir -m 700 "$WORK/home" && chown "$user" "$WORK/home"
# The user must reach the build.
cp "$CLAIRFS" "$LIB/reader" "$WORK" && chmod 755 "$WORK/clairfs" "$WORK/reader"
CLAIRFS=$WORK/clairfs
as_user() { within 90 runuser -u "$user" -- env XDG_RUNTIME_DIR="$WORK/home" XDG_CACHE_HOME="$WORK/home/cache" HOME="$WORK/home" "$@"; }
as_user unshare -Ur true 2>/dev/null || skip "users may not make namespaces"
run() { as_user "$CLAIRFS" run "$WORK/src" -o $o --quiet -- "$@" 2>>"$WORK/run.log"; }

as_user cat "$WORK/src/class000/img000000.png" >/dev/null 2>&1 && fail "readable without the list"
setfacl -R -m "u:$user:rX" "$WORK/src" 2>/dev/null || skip "no lists on this file system"
as_user cat "$WORK/src/class000/img000000.png" >/dev/null || fail "not readable with the list"
same() { [ "$(jq .hash "$WORK/reader.out")" = "$(jq .hash "$WORK/native")" ] || fail "$1: not the source's bytes"; }
run "$WORK/reader" "$WORK/src" "$WORK/order" >"$WORK/reader.out" || fail "run gave $?"
same "by read"
run "$WORK/reader" "$WORK/src" "$WORK/order" --direct >"$WORK/reader.out" || fail "O_DIRECT: run gave $?"
same "by O_DIRECT"
cat >"$WORK/map.py" <<'P'
import mmap, os, sys
top, got = sys.argv[1], sys.stdout.buffer
for line in open(sys.argv[2]):
    if line.strip():
        fd = os.open(os.path.join(top, line.rstrip("\n")), os.O_RDONLY)
        for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with mmap.mmap(fd, 0, flags, mmap.PROT_READ) as m:
                got.write(m[:])
        os.close(fd)
P
if command -v python3 >/dev/null; then
	python3 "$WORK/map.py" "$WORK/src" "$WORK/order" | md5sum >"$WORK/theirs"
	run python3 "$WORK/map.py" "$WORK/src" "$WORK/order" | md5sum >"$WORK/ours"
	cmp "$WORK/ours" "$WORK/theirs" || fail "by mmap: not the source's bytes"
fi
# Foreign ids are the user's own; the rights are what the list gives.
f=$WORK/src/class001/img000001.png
run stat -c %u:%g "$f" >"$WORK/ids" || fail "stat"
[ "$(cat "$WORK/ids")" = "$(id -u "$user"):$(id -g "$user")" ] || fail "ids: $(cat "$WORK/ids")"
run sh -c "test -r '$f' && ! test -w '$f' && ! test -x '$f' && test -x '$WORK/src/class001'" ||
	fail "not the rights of the user: $(run ls -l "$f")"
# Who is in no list may not read through a run.
g=$WORK/src/class000/img000000.png
setfacl -b "$g"
as_user cat "$g" >/dev/null 2>&1 && fail "readable without the list"
run cat "$g" >/dev/null 2>&1 && fail "a file that the user may not read was read"
exit 0
