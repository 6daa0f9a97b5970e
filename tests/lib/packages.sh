# SPDX-License-Identifier: BSD-3-Clause
# Sourced: what Debian 12 packages are needed, and how they get here.
build_packages=(gcc libc6-dev meson ninja-build pkg-config libfuse3-dev fuse3 libxxhash-dev
	libinih-dev libjansson-dev libcriterion-dev libopenmpi-dev openmpi-bin scdoc)
test_packages=(jq attr acl procps util-linux mount passwd e2fsprogs iproute2 python3-torch
	python3-mpi4py xz-utils)
quickstart_packages=(python3-torch python3-pil openclipart-png gnuplot-nox jq)

# Installs those that are missing, as root or with sudo; goes on when all are there.
install_packages() {
	local missing=() p try sudo=()
	for p in "$@"; do
		dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' ||
			missing+=("$p")
	done
	[ ${#missing[@]} = 0 ] && return 0
	if [ "$(id -u)" != 0 ]; then
		command -v sudo >/dev/null || { echo "needs root or sudo for: ${missing[*]}" >&2; return 1; }
		sudo=(sudo)
	fi
	echo "installing ${missing[*]}"
	for try in 1 2 3; do
		"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -q update </dev/null &&
			"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive timeout 900 apt-get -q -y \
				--no-install-recommends install "${missing[@]}" </dev/null && return 0
		sleep $((try * 5))
	done
	echo "could not install: ${missing[*]}" >&2
	return 1
}
