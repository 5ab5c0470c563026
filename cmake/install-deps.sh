#!/bin/sh
# Installs Debian packages that are not there yet: install-deps.sh build|test|ci|cross
#   build   what the library, the commands and `pip install .` need
#   test    build, and what the tests need: GoogleTest, torch, onnx, node, ccache
#   ci      test, and clang 14, its sanitizers (llvm-14 puts names into their reports) and tools;
#           chromium, in which the pages of reports are opened
#   cross   build, and what builds for arm64 and runs the result (packaging/cross_arm64.sh)
# install-deps.sh arm64 prints the libraries that such a build is linked with, and installs nothing.
set -eu

libraries="libonnx-dev libprotobuf-dev zlib1g-dev libdeflate-dev libssl-dev libre2-dev libcli11-dev
  libfmt-dev nlohmann-json3-dev libexpected-dev libmimalloc-dev libseccomp-dev robin-map-dev"
build="build-essential cmake ninja-build pkg-config protobuf-compiler python3-dev python3-venv
  $libraries"
test="libgtest-dev libgmock-dev libbenchmark-dev python3 python3-numpy python3-onnx python3-torch
  python3-torchvision openmpi-bin libopenmpi-dev groff-base file
  ccache"

ci="clang-14 libclang-rt-14-dev llvm-14 clang-format-14 clang-tidy-14 chromium"
cross="g++-aarch64-linux-gnu qemu-user-static python3"
command -v node >/dev/null || test="$test nodejs"
command -v npm >/dev/null || test="$test npm"

case "${1:-}" in
  build) wanted="$build" ;;
  test) wanted="$build $test" ;;
  ci) wanted="$build $test $ci" ;;
  cross) wanted="$build $cross" ;;
  arm64) echo $libraries libgtest-dev libgmock-dev; exit 0 ;;
  *) echo "usage: install-deps.sh build|test|ci|cross|arm64" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null; then
  # shellcheck disable=SC2086  # a list of package names
  {
    echo "install-deps.sh: error: this system has no apt-get, so nothing can be installed. Needed are,"
    echo "by their names in Debian 12 or newer:"
    printf '  %s\n' $wanted
    echo "Install what your system calls them, then build without this script:"
    echo "  sh cmake/build.sh build/demo -DONNX_EXTERNAL_BUILD_TESTS=OFF -DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF"
    echo "docs/install.md says which systems were tried."
  } >&2
  exit 1
fi

missing=""
for package in $wanted; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
echo "installing:$missing" >&2

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# apt's reports of how far it is, as one line that moves on a terminal; all else goes to the log.
show_progress() {
  while IFS= read -r line; do
    case "$line" in
      dlstatus:* | pmstatus:*)
        rest=${line#*:*:}  # PERCENT:WHAT
        [ ! -t 2 ] || printf '\r\033[K%3d %% %.60s' "${rest%%.*}" "${rest#*:}" >&2 ;;
      *) printf '%s\n' "$line" >>"$log" ;;
    esac
  done
  [ ! -t 2 ] || printf '\r\033[K' >&2
}

apt() {
  {
    DEBIAN_FRONTEND=noninteractive $as_root apt-get -qq -o APT::Status-Fd=1 "$@" 2>&1 ||
      echo "apt-get failed"
  } | show_progress
  if [ "$(tail -n 1 "$log")" = "apt-get failed" ]; then
    cat "$log" >&2
    exit 1
  fi
}
apt update
# shellcheck disable=SC2086  # a list of package names
apt install -y --no-install-recommends $missing
