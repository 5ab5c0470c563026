#!/bin/sh
# Runs clang-tidy over all own sources, in parallel; any finding fails. Library and commands go
# through their unity builds, which takes a third of the time.
# usage: tidy.sh BUILD_DIR [REGEX]      only the files whose path matches
set -eu
cd "$(dirname "$0")/.."
folder=$1/tidy
cmake -S . -B "$folder" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_BUILD_TYPE=None \
  -DONNX_EXTERNAL_UNITY=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
# A unity file includes sources, which is suspicious elsewhere.
exec run-clang-tidy-14 -quiet -p "$folder" -checks=-bugprone-suspicious-include -j "${TIDY_JOBS:-$(nproc)}" \
  "${2:-^$PWD/(src|tools|tests|benchmarks)/|/Unity/}"
