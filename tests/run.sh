#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# tests/run.sh [--install] [--quick] [--build DIR] [NAME…]
# Builds with warnings as errors and runs all tests, or those named (unit/NAME, stress/NAME,
# fuzz/NAME, e2e/NAME). --install: Debian's packages first (root or sudo). --quick: no sanitizers.
# Ends in the line `N passed, N failed`; exit status 1 when any failed.
set -u
exec </dev/null
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top" || exit 1
# shellcheck source=tests/lib/packages.sh
. tests/lib/packages.sh
export TERM=${TERM:-dumb} LC_ALL=C.UTF-8
build=$top/build/test install=0 quick=0 names=()
while [ $# -gt 0 ]; do
	case $1 in
	--install) install=1 ;;
	--quick) quick=1 ;;
	--build) build=$2; shift ;;
	-h | --help) sed -n '3,6s/^# //p' "$0"; exit 0 ;;
	-*) echo "tests/run.sh: no option $1; there are --install, --quick, --build DIR" >&2; exit 2 ;;
	*) names+=("${1%.sh}") ;;
	esac
	shift
done
logs=$(mktemp -d "${TMPDIR:-/tmp}/clairfs-tests.XXXXXX")
passed=0 failed=0 skipped=0 flaky=() broken=()
trap 'rm -rf "$logs"' EXIT

chosen() { # NAME: with names given, only those
	local n
	[ ${#names[@]} = 0 ] && return 0
	for n in "${names[@]}"; do [ "$n" = "$1" ] || [ "$n" = "${1%%/*}" ] && return 0; done
	return 1
}

# NAME COMMAND…: runs it, once more when it fails; 77 is a skip.
run_one() {
	local name=$1 log code again start=$SECONDS; shift
	log=$logs/${name//\//_}.log
	for again in 0 1; do
		"$@" >"$log" 2>&1
		code=$?
		# Criterion's children may end well after a report.
		[ $code = 0 ] && grep -qE 'ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|: runtime error:' "$log" && code=1
		[ $code = 0 ] || [ $code = 77 ] || [ $again = 1 ] && break
		cp "$log" "$log.first"
	done
	case $code in
	0)
		passed=$((passed + 1))
		if [ $again = 1 ]; then
			flaky+=("$name")
			echo "ok    $name ($((SECONDS - start)) s, at the second try); at the first:"
			tail -n 15 "$log.first" | sed 's/^/      | /'
		else
			echo "ok    $name ($((SECONDS - start)) s)"
		fi ;;
	77)
		skipped=$((skipped + 1))
		echo "skip  $name: $(grep -m 1 '^SKIP: ' "$log" | cut -c7-)" ;;
	*)
		failed=$((failed + 1))
		broken+=("$name")
		echo "FAIL  $name (status $code); the end of its output:"
		tail -n 60 "$log" | sed 's/^/      | /' ;;
	esac
}

make_build() { # DIR OPTION…
	local dir=$1; shift
	if [ -f "$dir/build.ninja" ]; then
		meson configure "$dir" -Dwerror=true "$@" >/dev/null
	else
		meson setup "$dir" "$top" -Dwerror=true "$@"
	fi && ninja -C "$dir"
}

# An end-to-end script sees mounts and processes of its own; both end with it.
isolated() {
	local seconds=$1; shift
	if [ "$(id -u)" = 0 ] && unshare -m -p -f --mount-proc --kill-child true 2>/dev/null; then
		timeout -k 10 "$seconds" unshare -m --propagation private -p -f --mount-proc \
			--kill-child bash "$@"
	else
		timeout -k 10 "$seconds" bash "$@"
	fi
}

programs() { # FOLDER: the test programs of a build
	local f
	for f in "$1"/test_* "$1"/stress_* "$1"/fuzz_*; do
		[ -f "$f" ] && [ -x "$f" ] && echo "$f"
	done
}

run_programs() { # BUILD KIND PREFIX
	local f name
	export CLAIR_VECTORS=$top/tests/vectors
	for f in $(programs "$1/tests/$2"); do
		name=$3$2/${f##*/}
		chosen "$2/${f##*/}" || chosen "$name" || continue
		run_one "$name" timeout -k 10 180 "$f"
	done
}

run_scripts() { # BUILD PREFIX SECONDS NAME…
	local dir=$1 prefix=$2 seconds=$3 f; shift 3
	for f in "$@"; do
		chosen "e2e/$f" || chosen "${prefix}e2e/$f" || continue
		CLAIRFS_BUILD=$dir run_one "${prefix}e2e/$f" isolated "$seconds" "$top/tests/e2e/$f.sh" "$dir/tools/clairfs"
	done
}

[ $install = 0 ] || run_one install install_packages "${build_packages[@]}" "${test_packages[@]}"
[ ! -e /dev/fuse ] && [ "$(id -u)" = 0 ] && { modprobe fuse || mknod /dev/fuse c 10 229; } 2>/dev/null

start=$SECONDS
before=$failed built=0
run_one build make_build "$build"
if [ $failed = $before ]; then
	built=1
	run_programs "$build" unit ''
	run_programs "$build" stress ''
	run_programs "$build" fuzz ''
	scripts=()
	for f in tests/e2e/*.sh; do
		[ -f "$f" ] && f=${f##*/} && scripts+=("${f%.sh}")
	done
	run_scripts "$build" '' 180 "${scripts[@]}"
fi
if [ $quick = 0 ] && [ $built = 1 ]; then
	export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99:allocator_may_return_null=1
	export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
	export LSAN_OPTIONS=suppressions=$top/tests/lib/lsan.supp:print_suppressions=0
	run_one asan/build make_build "$build-asan" -Dbuildtype=debug -Doptimization=1 \
		-Db_sanitize=address,undefined -Db_lundef=false
	if [ -x "$build-asan/tools/clairfs" ]; then
		run_programs "$build-asan" unit asan/
		run_programs "$build-asan" fuzz asan/
		# A daemon ends without freeing what it has: the units' tests look for leaks.
		export ASAN_OPTIONS=${ASAN_OPTIONS/detect_leaks=1/detect_leaks=0}
		run_scripts "$build-asan" asan/ 180 $(cat tests/e2e/asan.list 2>/dev/null)
	fi
	export TSAN_OPTIONS=halt_on_error=1:exitcode=98:second_deadlock_stack=1
	run_one tsan/build make_build "$build-tsan" -Dbuildtype=debug -Doptimization=1 \
		-Db_sanitize=thread -Db_lundef=false
	run_programs "$build-tsan" stress tsan/
fi
echo
[ ${#flaky[@]} = 0 ] || printf 'flaky: %s\n' "${flaky[@]}"
[ ${#broken[@]} = 0 ] || printf 'failed: %s\n' "${broken[@]}"
echo "$skipped skipped, $((SECONDS - start)) s"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
