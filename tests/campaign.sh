#!/bin/sh
# Everything that docs/measurements.md records, in full; hours on 2 cores. What needs root (mounting
# disks) is skipped without it, and the table says so.
#
# usage: sh tests/campaign.sh [faults] [limits] [mutants] [strict] [zoo] [clients] [diagnose] [noise] [rewriting] [repeat] [generation] [constructs] [operators] [imports] [wheels] [abi3] [arm64] [benchmarks] [sums] [fuzz] [sanitizers]      (default: all)
# FUZZ_SECONDS: for each target (default 600). STRICT_SEED: draws other cases (default 2; the tests take 1).
# SUMS_SEED: draws other hostile files (default 5). REWRITING_SEED: draws other modules (default 1).
# PYTHONS: the interpreters that wheels are made for (default python3; abi3: python3.12 python3.13).
# fuzz and sanitizers need clang-14.
set -eu
cd "$(dirname "$0")/.."

faults() {
  python3 tests/faults/campaign.py build/check
}

limits() {
  /usr/bin/python3 tests/limits/limits_test.py --bin-dir build/check/tools --work-dir build/check/tests/limits/work \
    --scarcity build/check/tests/limits/libscarcity.so --fixtures fixtures --page build/check/tests/limits/page.md
}

mutants() {
  build/check/tests/mutants/mutants
}

strict() {
  common="tests/strict/strict_test.py --bin-dir build/check/tools --seed ${STRICT_SEED:-2}"
  # shellcheck disable=SC2086  # words without spaces
  /usr/bin/python3 $common --work-dir build/check/tests/oracle --exporter legacy --cases 14000
  # shellcheck disable=SC2086
  python3 tests/strict/modern_env.py build/check/tests/strict/modern \
    $common --work-dir build/check/tests/strict --exporter modern --cases 6000
}

zoo() {
  wheels=build/check/tests/python/wheels
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels build/check/tests/zoo \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern tests/zoo/zoo_test.py \
    --bin-dir build/check/tools --work-dir build/check/tests/zoo --page docs/constructs.md --write
  sh tests/zoo/run.sh $wheels build/check/tests/zoo/folders \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern tests/zoo/export_test.py \
    --work-dir build/check/tests/zoo/folders --page docs/constructs.md --write
  sh tests/zoo/run.sh $wheels build/check/tests/zoo/attention \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern tests/zoo/attention_test.py \
    --work-dir build/check/tests/zoo/attention --page docs/constructs.md --write
}

# The programs of docs/consumers.md, which are installed; 10 minutes.
clients() {
  wheels=build/check/tests/python/wheels work=build/check/tests/clients
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels $work python3 tests/strict/modern_env.py build/check/tests/strict/modern \
    tests/clients/clients.py --work-dir $work/work --page docs/consumers.md
}

diagnose() {
  wheels=build/check/tests/python/wheels
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels build/check/tests/diagnose \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern tests/diagnose/campaign.py \
    --work-dir build/check/tests/diagnose/work --page build/check/tests/diagnose/page.md
}

noise() {
  wheels=build/check/tests/python/wheels
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels build/check/tests/noise \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern tests/diagnose/noise.py \
    --work-dir build/check/tests/noise/work --page build/check/tests/noise/page.md
}

rewriting() {
  wheels=build/check/tests/python/wheels work=build/check/tests/rewriting
  sh packaging/wheel.sh $wheels
  mkdir -p $work
  for step in "judge.py --way torch.onnx --way ours --json $work/judged.json --page $work/judged.md" \
    "random_modules.py --count 5000 --seed ${REWRITING_SEED:-1} --jobs 2 --json $work/random.json" \
    "sabotage.py --page $work/sabotage.md"; do
    # shellcheck disable=SC2086  # words without spaces
    sh tests/zoo/run.sh $wheels $work python3 tests/strict/modern_env.py build/check/tests/strict/modern \
      tests/rewriting/$step
  done
}

# Whether the benchmark of the package runs; its figures are those of docs/measurements.md.
benchmarks() {
  wheels=build/check/tests/python/wheels
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels build/check/tests/benchmarks \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern benchmarks/python_save.py \
    --quick --rounds 1 --work-dir build/check/tests/benchmarks --bin-dir build/check/tools \
    --cases 2GB,small,read,seed
  python3 tests/strict/modern_env.py build/check/tests/strict/modern benchmarks/quantize.py \
    build/check/tools/save-external build/check/tests/benchmarks 0.5 1
  sh tests/zoo/run.sh $wheels build/check/tests/benchmarks \
    python3 tests/strict/modern_env.py build/check/tests/strict/modern benchmarks/decode.py \
    build/check/tests/benchmarks/decode --model tiny --contexts 8 --rounds 1 --runs 1 --no-builder
}

# Graphs with repeated layers beside those of a full trace: 20 seconds of CPU for each architecture, and
# with sizes that vary 40.
repeat() {
  wheels=build/check/tests/python/wheels work=build/check/tests/zoo/repeated
  sh packaging/wheel.sh $wheels
  for sizes in --static ""; do
    sh tests/zoo/run.sh $wheels $work python3 tests/strict/modern_env.py build/check/tests/strict/modern \
      tests/zoo/repeat_test.py --work-dir $work --jobs 2 --at-least 75 --page $work/page.md $sizes
  done
}

generation() {
  wheels=build/check/tests/python/wheels work=build/check/tests/generation
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels $work python3 tests/strict/modern_env.py build/check/tests/strict/modern \
    tests/generation/campaign.py --work-dir $work/models
}

# About 3 seconds of CPU for each cell of the table.
constructs() {
  wheels=build/check/tests/python/wheels work=build/check/tests/constructs
  sh packaging/wheel.sh $wheels
  sh tests/zoo/run.sh $wheels $work python3 tests/strict/modern_env.py build/check/tests/strict/modern \
    tests/constructs/campaign.py --page docs/constructs.md
}

# Every order of imports beside ours, 210 s of CPU; the tests try ten of the 120.
imports() {
  wheels=build/check/tests/python/wheels work=build/check/tests/imports
  sh packaging/wheel.sh $wheels
  rm -rf $work/saved && mkdir -p $work/saved
  sh tests/zoo/run.sh $wheels $work python3 tests/strict/modern_env.py build/check/tests/strict/modern \
    python/tests/import_orders.py fixtures/tiny $work/saved torch onnx onnxruntime onnx_ir onnx_external
}

# The library and the commands for arm64, built here and run by qemu: an hour of CPU without ccache.
arm64() {
  sh packaging/cross_arm64.sh build/arm64 test
}

# One wheel for all Pythons from 3.12 on: made by the first interpreter, tried with each.
abi3() {
  folder=build/check/tests/python/wheels-abi3
  # shellcheck disable=SC2086  # a list of names
  set -- ${PYTHONS:-python3.12 python3.13}
  sh packaging/wheel.sh "$folder" "$1" --config-settings=wheel.py-api=cp312
  for python in "$@"; do
    rm -rf "$folder/env"
    "$python" -m venv "$folder/env"
    python3 tests/python/bare_root.py "$folder" fixtures "$folder/bare" "$folder/env/bin/python"
  done
}

# A wheel for each interpreter, tried in a root that has nothing else.
wheels() {
  for python in ${PYTHONS:-python3}; do
    folder=build/check/tests/python/wheels-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    sh packaging/wheel.sh "$folder" "$python"
    python3 tests/python/bare_root.py "$folder" fixtures "$folder/bare" "$folder/build/env/bin/python"
  done
}

# torch's own samples of its operators need expecttest.
operators() {
  wheels=build/check/tests/python/wheels work=build/check/tests/operators
  modern="python3 tests/strict/modern_env.py build/check/tests/strict/modern"
  sh packaging/wheel.sh $wheels
  $modern -m pip install --quiet --disable-pip-version-check expecttest==0.3.0
  # shellcheck disable=SC2086  # words without spaces
  sh tests/zoo/run.sh $wheels $work $modern tests/operators/sweep.py \
    --json build/check/tests/operators.json --page docs/constructs.md
}

sums() {
  python3 tests/sums/sums_test.py --bin-dir build/check/tools --cases 2250 --max-size 1000000 --seed "${SUMS_SEED:-5}"
}

fuzz() {
  CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE=-O2 -DONNX_EXTERNAL_BUILD_FUZZERS=ON -DONNX_EXTERNAL_BUILD_TESTS=OFF \
    -DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF >/dev/null
  cmake --build build/fuzz --target fuzz
  python3 tests/fuzz/campaign.py build/fuzz --seconds "${FUZZ_SECONDS:-600}" --coverage build/coverage
}

sanitizers() {
  sh tests/each_file_compiles.sh tests
  for preset in asan tsan; do
    cmake --preset "$preset" >/dev/null
    cmake --build --preset "$preset"
    ctest --preset "$preset"
  done
}

sh cmake/install-deps.sh test
sh cmake/build.sh build/check -DONNX_EXTERNAL_WERROR=ON
for step in ${*:-faults limits mutants strict zoo clients diagnose noise rewriting repeat generation constructs operators imports wheels abi3 arm64 benchmarks sums fuzz sanitizers}; do
  case $step in
    faults | limits | mutants | strict | zoo | clients | diagnose | noise | rewriting | repeat | generation | constructs | operators | imports | wheels | abi3 | arm64 | benchmarks | sums | fuzz | sanitizers) "$step" ;;
    *) echo "campaign.sh: error: '$step' is not one of faults, limits, mutants, strict, zoo, clients, diagnose, noise, rewriting, repeat, generation, constructs, operators, imports, wheels, abi3, arm64, benchmarks, sums, fuzz, sanitizers" >&2; exit 2 ;;
  esac
done
