#!/bin/sh
# Configures and builds, and shows what is being done: one line that moves on a terminal, else one
# line a step. What fails is printed in full.
# usage: build.sh BUILD_FOLDER [CMAKE_OPTIONS...]
set -eu
folder=$1
shift

echo "configuring $folder"
mkdir -p "$folder"
# What is missing but not needed goes to stderr, and is seen.
if ! cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release -DONNX_EXTERNAL_UNITY=ON "$@" \
  >"$folder/configure.log"; then
  cat "$folder/configure.log" >&2
  exit 1
fi

echo "compiling (a few minutes)"
if [ -t 1 ]; then
  cmake --build "$folder"  # ninja moves one line by itself
else
  cmake --build "$folder" -- --quiet
fi
