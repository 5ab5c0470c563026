#!/bin/sh
# Everything that docs/reliability.md records, in full; hours on 2 cores. What needs root (mounting
# disks) is skipped without it, and the page says so.
#
# usage: sh tests/campaign.sh [faults] [mutants] [fuzz] [sanitizers]      (default: all of them)
# FUZZ_SECONDS: for each target (default 600). fuzz and sanitizers need clang-14 and libomp-14-dev.
set -eu
cd "$(dirname "$0")/.."

faults() {
  python3 tests/faults/campaign.py build/check
}

mutants() {
  build/check/tests/mutants/mutants
}

fuzz() {
  CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE=-O2 -DONNX_EXTERNAL_BUILD_FUZZERS=ON -DONNX_EXTERNAL_BUILD_TESTS=OFF \
    -DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF >/dev/null
  cmake --build build/fuzz --target fuzz
  python3 tests/fuzz/campaign.py build/fuzz --seconds "${FUZZ_SECONDS:-600}" --coverage build/coverage
}

sanitizers() {
  for preset in asan tsan; do
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset"
    ctest --preset "$preset"
  done
}

sh cmake/install-deps.sh test
cmake -S . -B build/check -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DONNX_EXTERNAL_WERROR=ON >/dev/null
cmake --build build/check
for step in ${*:-faults mutants fuzz sanitizers}; do
  case $step in
    faults | mutants | fuzz | sanitizers) "$step" ;;
    *) echo "campaign.sh: error: '$step' is not one of faults, mutants, fuzz, sanitizers" >&2; exit 2 ;;
  esac
done
