#!/bin/sh
# Builds the commands for arm64 (aarch64) on a machine of another kind, with Debian's cross compiler.
# The arm64 libraries are fetched into a folder; nothing of them is installed here, and the
# architectures that this machine's packages may have stay as they are.
#
# usage: cross_arm64.sh OUT [test [NAME...]]
#   OUT   gets sysroot/ (the libraries), build/ (build/tools has the commands) and qemu/ (the same
#         commands, run by qemu)
#   test  also runs the unit tests, the commands' golden tests and the fixture by qemu
#   NAME  an executable of the unit tests, such as tensor_test: only such ones are built and run
set -eu
out=$1 what=${2:-build}
shift "$(($# < 2 ? $# : 2))"
cd "$(dirname "$0")/.."
mkdir -p "$out"
out=$(cd "$out" && pwd)
root=$out/sysroot/root

# apt with a state of its own, in which the machine is an arm64 one without packages.
arm64_apt() {
  apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root \
    -o Dir::State="$out/sysroot/state" -o Dir::State::status="$out/sysroot/state/status" \
    -o Dir::Cache="$out/sysroot/cache" "$@"
}

# Packages are unpacked as they are: no script of theirs, for which there is no processor, is run.
make_sysroot() {
  packages="libc6-dev libstdc++-$(aarch64-linux-gnu-g++ -dumpversion)-dev $(sh cmake/install-deps.sh arm64)"
  [ "$(cat "$out/sysroot/unpacked" 2>/dev/null)" != "$packages" ] || return 0
  rm -rf "$out/sysroot"
  mkdir -p "$out/sysroot/state/lists/partial" "$out/sysroot/cache/archives/partial" "$root/usr/lib"
  : >"$out/sysroot/state/status"
  arm64_apt update
  # shellcheck disable=SC2086  # a list of packages
  arm64_apt install --download-only -y --no-install-recommends $packages
  ln -s usr/lib "$root/lib"  # as in a system
  for package in "$out"/sysroot/cache/archives/*.deb; do
    dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$root"
  done
  find "$root" -type l -lname '/*' | while read -r link; do  # which would lead into this machine
    ln -snf "$root$(readlink "$link")" "$link"
  done
  echo "$packages" >"$out/sysroot/unpacked"
}

sh cmake/install-deps.sh cross
make_sysroot
tests=OFF
[ "$what" != test ] || tests=ON
TARGETS="save-external verify-external inspect-external cut-external"
[ "$what" != test ] || TARGETS="${*:-$TARGETS unit_tests}"
export TARGETS
sh cmake/build.sh "$out/build" -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/arm64.cmake" \
  -DCMAKE_SYSROOT="$root" -DONNX_EXTERNAL_MPI=OFF -DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF \
  -DONNX_EXTERNAL_BUILD_TESTS=$tests

mkdir -p "$out/qemu"
for command in save verify inspect cut; do
  printf '#!/bin/sh\nexec qemu-aarch64-static -0 %s -L %s %s "$@"\n' \
    "$command-external" "$root" "$out/build/tools/$command-external" >"$out/qemu/$command-external"
  chmod +x "$out/qemu/$command-external"
done
[ "$what" = test ] || exit 0

# A process of several threads cannot be forked in qemu-user, and it has no Landlock and no seccomp.
filter='-*IsForkedWhileAnotherThread*:Sandbox.*'
failed=""
for test in $(cd "$out/build/tests/unit" && find . -type f -name '*_test' -o -type f -name '*_test_threads'); do
  case " ${*:-${test##*/}} " in *" ${test##*/} "*) ;; *) continue ;; esac
  echo "$test"
  qemu-aarch64-static -L "$root" "$out/build/tests/unit/$test" --gtest_brief=1 \
    --gtest_filter="$filter" ||
    failed="$failed $test"
done
if [ $# = 0 ]; then
  for golden in tests/cli/*.golden; do
    echo "$golden"
    python3 tests/cli/golden.py "$out/qemu" fixtures "$out/golden" "$golden" ||
      failed="$failed $golden"
  done
  PATH=$out/qemu:$PATH
  save-external fixtures/tiny/graph.onnx fixtures/tiny/checkpoint.pt -o "$out/fixture" --overwrite
  verify-external "$out/fixture/model.onnx" --against fixtures/tiny/checkpoint.pt
fi
[ -z "$failed" ] || { echo "failed on arm64:$failed" >&2; exit 1; }
