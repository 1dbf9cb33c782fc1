#!/usr/bin/env bash
# Installs the packages that the build and the tests need, on Debian 12, Ubuntu 24.04 or later. As root or with sudo;
# asks the package manager nothing when all of them are there.
set -euo pipefail

packages=(
  g++ make cmake ninja-build ccache pkg-config git
  libyaml-cpp-dev libfmt-dev catch2 nlohmann-json3-dev libcli11-dev libpcre2-dev libutf8proc-dev libhwy-dev libtbb-dev
  libeigen3-dev
  clang-format-14
  python3 python3-venv python3-pip ca-certificates
)
boost_versions=(1.90 1.89 1.88 1.87 1.86 1.85 1.84 1.83 1.82 1.81) # newest first; 1.81 is the oldest that will do

installed() { dpkg-query --show --showformat='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
boost=""
for version in "${boost_versions[@]}"; do
  if installed "libboost$version-dev"; then boost=$version; fi
done
if ((${#missing[@]} == 0)) && [[ -n $boost ]]; then
  echo "packages: all there"
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: there is no apt-get here; install what corresponds to:" \
    "${packages[*]} and Boost 1.81 or later" >&2
  exit 1
fi
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "install_packages.sh: run it as root, or install sudo; missing: ${missing[*]} ${boost:-and Boost}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }

apt update
if [[ -z $boost ]]; then
  for version in "${boost_versions[@]}"; do
    if apt-cache show "libboost$version-dev" >/dev/null 2>&1; then
      boost=$version
      missing+=("libboost$version-dev")
      break
    fi
  done
  if [[ -z $boost ]]; then
    echo "install_packages.sh: this system packages no Boost of 1.81 or later" >&2
    exit 1
  fi
fi
echo "packages: installing ${missing[*]}"
apt install --yes --no-install-recommends "${missing[@]}" >/dev/null
