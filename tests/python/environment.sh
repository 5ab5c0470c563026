#!/bin/sh
# The environment of the package's tests: pytest, ruff and mypy, with the torch, onnx and ONNX
# Runtime of tests/strict/modern_env.py, and the package of a wheel.
#
# usage: environment.sh tools WORK_DIR COMMAND...    makes it in WORK_DIR/env, without the package
#        environment.sh wheel WORK_DIR WHEEL_DIR     installs the wheel with pip
#   COMMAND  runs the Python that has torch: "modern_env.py FOLDER"
set -eu
what=$1 work=$2
shift 2

install_tools() {
  packages=$("$@" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  python=$("$@" -c 'import sys; print(sys._base_executable)')
  tools="pytest==9.2.0 mypy==2.4.1 ruff==0.17.6 ml_dtypes==0.6.0"
  mkdir -p "$work"
  if [ "$(cat "$work/installed" 2>/dev/null)" != "$tools" ]; then
    rm -rf "$work/env" "$work/installed"
    "$python" -m venv "$work/env"
    # shellcheck disable=SC2086  # a list of packages
    "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile \
      $tools
    echo "$tools" >"$work/installed"
  fi
  echo "$packages" >"$("$work/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/modern.pth"
}

install_wheel() {
  "$work/env/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    --force-reinstall "$1"/*.whl
}

"install_$what" "$@"
