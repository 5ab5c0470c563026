#!/bin/sh
# Installs the wheel with pip into an environment of its own, with the torch, onnx and ONNX Runtime
# of tests/strict/modern_env.py, and runs the package's tests, ruff and mypy.
#
# usage: package.sh SOURCE_DIR WORK_DIR WHEEL_DIR COMMAND...
#   COMMAND  runs the Python that has torch: "modern_env.py FOLDER"
set -eu
source=$1 work=$2 wheels=$3
shift 3

packages=$("$@" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python=$("$@" -c 'import sys; print(sys._base_executable)')
tools="pytest==9.2.0 mypy==2.4.1 ruff==0.17.6 ml_dtypes==0.6.0"
mkdir -p "$work"
if [ "$(cat "$work/installed" 2>/dev/null)" != "$tools" ]; then
  rm -rf "$work/env" "$work/installed"
  "$python" -m venv "$work/env"
  # shellcheck disable=SC2086  # a list of packages
  "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check $tools
  echo "$tools" >"$work/installed"
fi
. "$work/env/bin/activate"
echo "$packages" >"$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/modern.pth"

cd "$source"
pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl
ruff check python packaging tests/python examples
ruff format --check --quiet python packaging tests/python examples
mypy --cache-dir "$work/mypy"
cd "$work"  # the package that was installed is meant, not the folder of its sources
python -m pytest -q -p no:cacheprovider "$source/python/tests"
