#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# clairfs order: what it prints, and that a mistake is one line on stderr and status 2.
# Needs no mount. The program: $CLAIRFS, else the first argument, else PATH's.
set -u
program=${CLAIRFS:-${1:-clairfs}}
work=$(mktemp -d /tmp/clairfs-order-XXXXXX)
trap 'rm -rf "$work"' EXIT
failures=0
unset WORLD_SIZE RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_SIZE PMI_RANK \
	SLURM_NTASKS SLURM_PROCID

fail() {
	echo "FAIL: $*"
	failures=$((failures + 1))
}

# prints EXPECTED ARGUMENTS...: words of the output, separated by blanks
prints() {
	local expected=$1 got status
	shift
	timeout 30 "$program" "$@" >"$work/stdout" 2>"$work/stderr"
	status=$?
	got=$(tr '\n' ' ' <"$work/stdout")
	[ $status = 0 ] || fail "$*: status $status"
	[ "${got% }" = "$expected" ] || fail "$*: '$got', not '$expected'"
	[ ! -s "$work/stderr" ] || fail "$*: stderr: $(cat "$work/stderr")"
}

# mistake WORD ARGUMENTS...: status 2, one line that has WORD, nothing on stdout
mistake() {
	local word=$1 status lines
	shift
	timeout 30 "$program" "$@" >"$work/stdout" 2>"$work/stderr"
	status=$?
	lines=$(wc -l <"$work/stderr")
	[ $status = 2 ] || fail "$*: status $status, not 2"
	[ "$lines" = 1 ] || fail "$*: $lines lines on stderr: $(cat "$work/stderr")"
	[ ! -s "$work/stdout" ] || fail "$*: something on stdout"
	grep -qF -- "$word" "$work/stderr" || fail "$*: no '$word' in: $(cat "$work/stderr")"
}

mkdir -p "$work/data/a" "$work/data/b" "$work/data/val"
touch "$work"/data/{a,b}/{1,2,10}.png "$work"/data/val/{x,y}.txt
data=$work/data

# torch.randperm(10, generator=manual_seed(42)) and its shards
prints "2 6 1 8 4 5 0 9 3 7" order --n 10 -o seed=42
prints "2 1 4 0 3" order --n 10 -o seed=42,world=2
prints "6 8 5 9 7" order --n 10 -o seed=42,world=2 --rank 1
prints "6 8 5 9 7" order -o world=2,ranks=1 --n=10 -o seed=42
prints "2 6 1" order --limit 3 --n 10 -o seed=42
prints "2 6 1 8 4 5 0 9 3 7" order --n 10 -o seed=41 --epoch 1
prints "2 6 1 8 4 5 0 9 3 7" order --n 10 -o seed=41,epoch=1
prints "0 1 2" order --n 3 -o sampler=sequential
# padding, and what is dropped
prints "0 2 4" order --n 5 -o sampler=torch-distributed,seed=0,shuffle=0,world=2
prints "1 3 0" order --n 5 -o sampler=torch-distributed,seed=0,shuffle=0,world=2 --rank 1
prints "1 3" order --n 5 -o sampler=torch-distributed,seed=0,shuffle=0,world=2,drop_last=1 --rank 1
# a split's samples keep their indices of the whole
prints "9 3 7" order --n 10 -o sampler=sequential,split=torch:42:0.7/0.3:1

prints "a/1.png a/10.png a/2.png b/1.png b/10.png b/2.png" \
	order "$data" -o sampler=sequential --paths
prints "0 1 2 3 4 5" order -o sampler=sequential "$data"
prints "val/x.txt val/y.txt" order "$data" --stream val -o sampler=sequential --paths
printf '1\n0\n\n0\n1\n' >"$work/list"
prints "val/y.txt val/x.txt" order "$data" --stream val --paths \
	-o "stream=val:sampler=list:$work/list"
printf '[clairfs]\nseed = 42\nworld = 2\nranks = 1\n' >"$work/conf"
prints "6 8 5 9 7" order --n 10 -o "config=$work/conf"
prints "0 1 2 3 4 5" order "$data" -o "sampler=sequential,catalog=$work/catalog"
[ -s "$work/catalog" ] || fail "the catalog was not saved"
prints "0 1 2 3 4 5" order "$data" -o "sampler=sequential,cache=$work/cache:1M"
[ -s "$work/cache/catalog" ] || fail "the catalog was not saved beside the cache"
touch "$data/a/3.png"
prints "0 1 2 3 4 5 6" order "$data" -o "sampler=sequential,catalog=$work/catalog"
# links are shown as the loader opens them
mkdir -p "$work/blobs/l" "$work/blobs/store"
touch "$work/blobs/store/f"
ln -s ../store/f "$work/blobs/l/a.png"
ln -s l "$work/blobs/m"
prints "l/a.png" order "$work/blobs" --stream l -o sampler=sequential --paths
printf 'm/a.png\nstore/f\n' >"$work/links"
prints "l/a.png store/f" order "$work/blobs" -o "sampler=sequential,index=list:$work/links" \
	--paths

mistake "a verb is missing"
mistake "nosuchverb" nosuchverb
mistake "--bogus" order --bogus
mistake "SOURCE or --n" order
mistake "--n" order "$data" --n 3 -o seed=1
mistake "order is not known" order --n 3
mistake "order is not known" order --n 3 -o seed=auto
mistake "--n x" order --n x -o seed=1
mistake "--rank 5" order --n 3 -o seed=1 --rank 5
mistake "--epoch -1" order --n 3 -o seed=1 --epoch -1
mistake "seed=x" order --n 3 -o seed=x
mistake "bogus" order --n 3 -o bogus=1
mistake "sampler=nope" order --n 3 -o sampler=nope
mistake "index=nope" order "$data" -o seed=1,index=nope
mistake "ranks=7" order --n 3 -o seed=1,world=2,ranks=7
mistake "split" order --n 3 -o seed=1,split=torch:1
mistake "nowhere" order "$work/nowhere" -o seed=1
mistake "x.txt" order "$data/val/x.txt" -o seed=1
mistake "too many" order "$data" "$data" -o seed=1
mistake "--paths" order --n 3 --paths -o seed=1
mistake "--stream" order "$data" --stream nope -o seed=1
mistake "config" order --n 3 -o config=/no/such/file
mistake "lies in the source" order "$data" -o "seed=1,cache=$data/c:1M"
mistake "writable" order --n 3 -o writable=1,seed=1

for words in "--help" "order --help" "--version" "order --version" "order --list" \
	"order --list --json"; do
	# shellcheck disable=SC2086 # words
	timeout 30 "$program" $words >"$work/stdout" 2>"$work/stderr" || fail "$words: status $?"
	[ -s "$work/stdout" ] && [ ! -s "$work/stderr" ] || fail "$words: prints nothing, or on stderr"
done
grep -q '"torch-distributed"' "$work/stdout" || fail "--list --json has no torch-distributed"

[ "$failures" = 0 ] || exit 1
echo "all as it should be"
