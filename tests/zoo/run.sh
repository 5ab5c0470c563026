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
# Nothing is fetched, and tests that run side by side do not take each other's cores.
export PYTHONPATH="$work/package" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
exec "$@"
