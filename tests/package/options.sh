#!/bin/sh
# What is optional and missing is said in one line while CMake configures; ON makes it an error.
# usage: options.sh SOURCE_DIR WORK_DIR
set -eu
source=$1 work=$2
rm -rf "$work"
mkdir -p "$work/pc"

# A machine without libseccomp, mimalloc and MPI.
for folder in $(pkg-config --variable pc_path pkg-config | tr : ' '); do
  for file in "$folder"/*.pc; do
    [ ! -e "$file" ] || ln -sf "$file" "$work/pc/"
  done
done
rm "$work/pc/libseccomp.pc"
configure() {
  PKG_CONFIG_LIBDIR=$work/pc PKG_CONFIG_PATH='' cmake -S "$source" -B "$work/build" -G Ninja \
    -DONNX_EXTERNAL_BUILD_TESTS=OFF -DONNX_EXTERNAL_BUILD_BENCHMARKS=OFF \
    -DCMAKE_DISABLE_FIND_PACKAGE_mimalloc=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON "$@" 2>&1
}
configure >"$work/auto"
for package in libseccomp-dev "libmimalloc-dev 2" libopenmpi-dev; do
  [ "$(grep -c "without $package, which is not installed: " "$work/auto")" = 1 ] ||
    { cat "$work/auto"; exit 1; }
done

configure -DONNX_EXTERNAL_SECCOMP=OFF -DONNX_EXTERNAL_MIMALLOC=OFF -DONNX_EXTERNAL_MPI=OFF \
  >"$work/off"
if grep "without lib" "$work/off"; then
  exit 1
fi

if configure -DONNX_EXTERNAL_SECCOMP=ON >"$work/on"; then
  echo "ONNX_EXTERNAL_SECCOMP=ON was accepted without libseccomp"
  exit 1
fi
grep -q "ONNX_EXTERNAL_SECCOMP is ON, and libseccomp-dev is not installed" "$work/on"
