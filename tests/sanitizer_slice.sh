#!/bin/sh
# A slice of the tests in a build by clang 14 with the address and undefined-behaviour sanitizers.
set -eu
cd "$(dirname "$0")/.."
sh cmake/install-deps.sh ci

# The slice is what reads bytes that others wrote: the readers of checkpoints and graphs and what
# they stand on, the mapping of hostile names, the threat table, the inputs of the fuzzers; and the
# golden runs of the commands, which save and verify. All else under both sanitizers:
# `sh tests/campaign.sh sanitizers`. Nothing is optimized: clang takes three times as long for -O1
# with sanitizers, which the tests do not win back.
slice="base_test tensor_test checkpoint_test onnx_test mapping_test threats_test"
TARGETS="$slice fuzz save-external verify-external inspect-external cut-external" sh cmake/build.sh build/ci \
  -DONNX_EXTERNAL_WERROR=ON -DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF -DONNX_EXTERNAL_MPI=OFF \
  -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=None \
  -DCMAKE_CXX_FLAGS="-O0 -gline-tables-only \
-fsanitize=address,undefined -fno-sanitize-recover=undefined"
labels=$(echo "$slice" | tr ' ' '|')
ctest --test-dir build/ci --output-on-failure -j "$(nproc)" -L "^($labels)\$"
ctest --test-dir build/ci --output-on-failure -j "$(nproc)" -R '^(Command\.Golden|FuzzSlice)\.'
