#!/bin/sh
# Configures and builds, and shows how far it is: one line that moves on a terminal, else one line
# for each step. What fails is printed in full.
# usage: [TARGETS="..."] build.sh BUILD_FOLDER [CMAKE_OPTIONS...]      all targets by default
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
# shellcheck disable=SC2086  # a list of targets
cmake --build "$folder" --target ${TARGETS:-all}
