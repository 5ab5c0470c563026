#!/bin/sh
# Installs the built project into a fresh prefix, then builds and runs a consumer against it, once
# through the CMake package and once by the compiler and `pkg-config --cflags --libs` alone, and the
# examples in C++.
# CXX and CXXFLAGS: those of the build, as far as they change the program's form (sanitizers).
# usage: run.sh BUILD_DIR SOURCE_DIR WORK_DIR
set -eu
build=$1 source=$2 work=$3
rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >/dev/null

# What only the sources of the library include need not be installed.
cmake -S "$source/tests/package/consumer" -B "$work/cmake" -G Ninja \
  -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_DISABLE_FIND_PACKAGE_tsl-robin-map=ON \
  -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/cmake" >/dev/null
tiny="$source/fixtures/tiny"
# The one-file checkpoint and one of several files: the places name the right one.
for checkpoint in checkpoint.pt sharded_safetensors; do
  out="$work/out-$checkpoint"
  "$work/cmake/consumer" "$tiny/graph.onnx" "$tiny/$checkpoint" "$out" >"$work/places.txt"
  /usr/bin/python3 "$source/tests/package/check_places.py" "$work/places.txt" \
    "$out/whole/initializers/manifest.json" 16
  diff -r "$out/whole" "$out/steps"
done

pc=$(dirname "$(find "$work/prefix" -name onnx_external.pc)")
# shellcheck disable=SC2046,SC2086  # lists of flags
"${CXX:-c++}" -std=c++20 ${CXXFLAGS:-} "$source/tests/package/consumer/main.cc" -o "$work/consumer" \
  $(PKG_CONFIG_PATH="$pc" pkg-config --cflags --libs onnx_external)
"$work/consumer" "$tiny/graph.onnx" "$tiny/checkpoint.pt" "$work/out-pc" >/dev/null
diff -r "$work/out-checkpoint.pt" "$work/out-pc"

for model in whole steps single; do
  "$work/prefix/bin/verify-external" "$work/out-pc/$model/model.onnx" \
    --against "$tiny/checkpoint.pt"
done

# The examples, as a reader of examples/README.md builds them.
cmake -S "$source/examples/cpp" -B "$work/examples" -G Ninja \
  -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/examples" >/dev/null
"$work/examples/attach_checkpoint" "$tiny/graph.onnx" "$tiny/checkpoint.pt" "$work/attached" |
  grep -q '^17 tensors, .* verified$'
"$work/prefix/bin/verify-external" "$work/attached/model.onnx" --against "$tiny/checkpoint.pt"
"$work/examples/stream_tensors" "$work/streamed"
"$work/prefix/bin/verify-external" "$work/streamed/model.onnx"
