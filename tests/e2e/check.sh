#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `status --check` names what changed, went away and came at the source; readers then get the
# new file whole.
. "$(dirname "$0")/../lib/mount.sh"
dataset "$WORK/src" 60 5000 3 1
mount_clairfs "$WORK/src" "$WORK/mnt" -o seed=1,sampler=torch-distributed,ram=16M
cat "$WORK"/mnt/*/* >/dev/null || fail "the first reading"
check() {
	within 60 "$CLAIRFS" status "$WORK/mnt" --check >"$WORK/out" 2>"$WORK/err"
	local code=$?
	[ $code = 0 ] || fail "status --check gave $code: $(cat "$WORK/err")"
}
check
grep -q 'at the source' "$WORK/out" && fail "an untouched source is told to have changed: $(cat "$WORK/out")"

mapfile -t files < <(list_of "$WORK/src")
changed=${files[3]} removed=${files[30]} new=class000/zz_new.png
head -c 12345 /dev/urandom >"$WORK/new"
cp "$WORK/new" "$WORK/src/$changed"
rm "$WORK/src/$removed"
cp "$WORK/new" "$WORK/src/$new"
check
grep -F "$changed" "$WORK/out" | grep -q 'changed' || fail "the changed file is not named: $(cat "$WORK/out")"
grep -F "$removed" "$WORK/out" | grep -q 'removed' || fail "the removed file is not named: $(cat "$WORK/out")"
grep -F "$new" "$WORK/out" | grep -q 'new at' || fail "the new file is not named: $(cat "$WORK/out")"
within 60 "$CLAIRFS" status "$WORK/mnt" --check --json >"$WORK/json" || fail "--check --json gave $?"
jq -e . "$WORK/json" >/dev/null || fail "--check --json is no JSON"

same() { cmp -s "$WORK/new" "$WORK/mnt/$changed"; }
same || fail "not the new file whole: $(stat -c %s "$WORK/mnt/$changed") bytes"
[ "$(stat -c %s "$WORK/mnt/$changed")" = 12345 ] || fail "the size of the new file"
cat "$WORK/mnt/$removed" >/dev/null 2>&1 && fail "a removed file can be read"
for f in "${files[@]}"; do
	[ "$f" = "$removed" ] || cmp "$WORK/src/$f" "$WORK/mnt/$f" || fail "$f: not the source's bytes"
done
umount_clean "$WORK/mnt"
within 10 "$CLAIRFS" status "$WORK/mnt" --check 2>"$WORK/err"
[ $? = 2 ] || fail "status of what is no mount: $(cat "$WORK/err")"
exit 0
