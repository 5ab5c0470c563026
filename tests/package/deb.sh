#!/bin/sh
# Makes the packages, installs them with dpkg into an empty root (dependencies are those of this
# machine's packages), does the main job with what lies there, removes them, and looks for traces.
# usage: deb.sh BUILD_DIR SOURCE_DIR WORK_DIR
set -eu
build=$1 source=$2 work=$3
if [ "$(id -u)" != 0 ] || ! command -v dpkg-shlibdeps >/dev/null; then
  echo "needs root and dpkg-dev"
  exit 77
fi
rm -rf "$work"
mkdir -p "$work"
cpack --config "$build/CPackConfig.cmake" -B "$work/packages" >"$work/cpack.log" || {
  cat "$work/cpack.log"
  exit 1
}

# An empty root, with the package database of this machine: a dependency that is wrong or not
# installed, or a file that another package owns, is an error.
root=$work/root
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
cp /var/lib/dpkg/status "$root/var/lib/dpkg/status"
cp /var/lib/dpkg/info/*.list /var/lib/dpkg/info/format "$root/var/lib/dpkg/info/"
of_root() { dpkg --root="$root" --log="$work/dpkg.log" --no-triggers "$@"; }
files() { find "$root" -path "$root/var/lib/dpkg" -prune -o -print | sort; }
files >"$work/before"

of_root --install "$work"/packages/*.deb >"$work/install.log"

for package in "$work"/packages/onnx-external_*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$work" --one-top-level=commands
  dpkg-deb -f "$package" Depends | grep -q 'libprotobuf[0-9]' # found by dpkg-shlibdeps
done
# The command for mpirun has a package of its own, which is there if MPI is.
if [ -e "$build/tools/save-external-mpi" ]; then
  "$root/usr/bin/save-external-mpi" --version >/dev/null
  dpkg-deb -f "$work"/packages/onnx-external-mpi_*.deb Depends | grep -q libopenmpi
fi
for command in save-external verify-external inspect-external cut-external; do
  binary=$root/usr/bin/$command
  [ "$("$binary" --version | head -n 1)" = "$command $(sed -n \
    's/^project(onnx_external VERSION \([0-9.]*\).*/\1/p' "$source/CMakeLists.txt")" ]
  [ "$(stat -c %s "$binary")" -lt 20000000 ]  # stripped
  page=$work/commands/usr/share/man/man1/$command.1.gz
  # Every option of the help text has its entry, and troff has nothing to complain about.
  gunzip -c "$page" >"$work/page"
  "$binary" --help | grep -oE '^  (-[a-z], )?--[a-z0-9-]+' | sed 's/^  //; s/-/\\-/g' |
    while IFS= read -r option; do
      grep -qF "\\fB$option" "$work/page" || { echo "$page: no $option"; exit 1; }
    done
  [ -z "$(groff -man -Tutf8 -ww -z "$work/page" 2>&1)" ]
  [ -f "$work/commands/usr/share/bash-completion/completions/$command" ]
done

# The main job, and a program against the installed library.
tiny=$source/fixtures/tiny
"$root/usr/bin/save-external" "$tiny/graph.onnx" "$tiny/checkpoint.pt" -o "$work/out"
"$root/usr/bin/verify-external" "$work/out/model.onnx" --against "$tiny/checkpoint.pt"
cmake -S "$source/tests/package/consumer" -B "$work/consumer" -G Ninja \
  -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_BUILD_TYPE=None >/dev/null
cmake --build "$work/consumer" >/dev/null
"$work/consumer/consumer" "$tiny/graph.onnx" "$tiny/checkpoint.pt" "$work/out-consumer" >/dev/null

mpi=$(cd "$work/packages" && ls onnx-external-mpi_*.deb 2>/dev/null | sed 's/_.*//')
of_root --purge onnx-external libonnx-external-dev $mpi >>"$work/install.log"
files >"$work/after"
diff "$work/before" "$work/after"
if dpkg-query --admindir="$root/var/lib/dpkg" -W onnx-external libonnx-external-dev; then
  exit 1
fi 2>/dev/null
