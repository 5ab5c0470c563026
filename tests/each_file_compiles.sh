#!/bin/sh
# clang 14 compiles each file of the library, the commands and the benchmarks by itself, without a
# warning. That finds the includes that are missing and that unity builds hide. Nothing is linked;
# the examples of the headers, and the tests with the other runtime of threads, which CMake makes
# after it linked the library, are left to ./check. Files of the tests are read on request, since
# they take longer than all others: after a change to their includes, say.
#
# usage: each_file_compiles.sh [tests|changed]
#   tests     those of tests/, too
#   changed   only those that the last 100 commits may have changed, with what they include
set -eu
cd "$(dirname "$0")/.."
sh cmake/install-deps.sh ci
others='header_examples\|_test_threads'
[ "${1:-}" = tests ] || others="$others\|^tests/"

echo "compiling each file by itself"
cmake -S . -B build/syntax -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=Syntax \
  -DCMAKE_CXX_FLAGS_SYNTAX=-fsyntax-only -DONNX_EXTERNAL_WERROR=ON >/dev/null
objects=$(ninja -C build/syntax -t targets all | sed -n "\\#$others#!s/^\\([^ ]*\\.o\\): .*/\\1/p")
if [ "${1:-}" = changed ]; then
  python3 tests/changed_sources.py . >build/syntax/changed
  # The object of src/base/file.cc is CMakeFiles/onnx_external.dir/src/base/file.cc.o.
  objects=$(echo "$objects" | awk '
    NR == FNR { changed[$0]; next }
    { source = $0; sub("CMakeFiles/[^/]*[.]dir/", "", source); sub("[.]o$", "", source) }
    source in changed' build/syntax/changed -)
fi
[ -n "$objects" ] || exit 0
# shellcheck disable=SC2086  # a list of targets
cmake --build build/syntax --target $objects -- --quiet -k 0
