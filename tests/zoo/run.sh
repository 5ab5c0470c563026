#!/bin/sh
# Runs a command, such as one that runs zoo_test.py, with the Python package of a wheel.
#
# usage: run.sh WHEEL_DIR WORK_DIR COMMAND...
set -eu
wheels=$1 work=$2
shift 2
rm -rf "$work/package"
mkdir -p "$work/package"
python3 -m zipfile --extract "$wheels"/*.whl "$work/package"
PYTHONPATH=$work/package exec "$@"
