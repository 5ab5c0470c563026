#!/bin/sh
# Runs the tests of a part of the package, or ruff and mypy, in the environment of environment.sh.
#
# usage: run.sh SOURCE_DIR WORK_DIR PART
#   PART  sources: ruff and mypy; core_alone: the core's tests as if torch were not installed;
#         else a folder of python/tests
set -eu
source=$1 work=$2 part=$3
. "$work/env/bin/activate"

if [ "$part" = sources ]; then
  cd "$source"
  ruff check python packaging tests/python examples
  ruff format --check --quiet python packaging tests/python examples
  mypy --cache-dir "$work/mypy"
  exit
fi
set -- "$source/python/tests/$part"
if [ "$part" = core_alone ]; then
  export PYTHONPATH="$source/python/tests"
  set -- -p without_torch "$source/python/tests/core"
fi
cd "$work"  # the package that was installed is meant, not the folder of its sources
# Several parts run beside each other, and beside other tests: one thread each.
OMP_NUM_THREADS=1 python -m pytest -q -p no:cacheprovider "$@"
