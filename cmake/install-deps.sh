#!/bin/sh
# Installs Debian packages that are not there yet: install-deps.sh build|test
#   build   what the library and the commands need
#   test    build, and what the tests need: GoogleTest, torch, onnx, ONNX Runtime's node
set -eu

build="build-essential cmake ninja-build pkg-config libonnx-dev libprotobuf-dev protobuf-compiler
  zlib1g-dev libdeflate-dev libssl-dev libre2-dev libcli11-dev libfmt-dev nlohmann-json3-dev
  libexpected-dev libmimalloc-dev libseccomp-dev robin-map-dev"
test="libgtest-dev libgmock-dev libbenchmark-dev python3 python3-numpy python3-onnx python3-torch
  python3-torchvision python3-venv openmpi-bin libopenmpi-dev"

case "${1:-}" in
  build) wanted="$build" ;;
  test) wanted="$build $test"
    command -v node >/dev/null || wanted="$wanted nodejs"
    command -v npm >/dev/null || wanted="$wanted npm" ;;
  *) echo "usage: install-deps.sh build|test" >&2; exit 2 ;;
esac

missing=""
for package in $wanted; do
  dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
echo "installing:$missing" >&2
$as_root apt-get update -qq
# shellcheck disable=SC2086  # a list of package names
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing \
  >/dev/null
