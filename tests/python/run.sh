#!/bin/sh
# Runs a part of the package's tests, or ruff and mypy, in the environment of environment.sh.
#
# usage: run.sh SOURCE_DIR WORK_DIR sources|exports|rewriting|others
set -eu
source=$1 work=$2 part=$3
. "$work/env/bin/activate"

exports="adapters beside example* folder_* generation* repeating torch_* transformers_*"
rewriting="diagnose* leftovers patches rewriting_* validate*"

# The files of the tests of some subjects, each behind $1.
files() {
  for subject in $2; do
    for file in "$source"/python/tests/test_$subject.py; do
      printf '%s%s\n' "$1" "$file"
    done
  done
}

if [ "$part" = sources ]; then
  cd "$source"
  ruff check python packaging tests/python examples
  ruff format --check --quiet python packaging tests/python examples
  mypy --cache-dir "$work/mypy"
  exit
fi
cd "$work"  # the package that was installed is meant, not the folder of its sources
case $part in
  exports) chosen=$(files '' "$exports") ;;
  rewriting) chosen=$(files '' "$rewriting") ;;
  others) chosen="$(files --ignore= "$exports $rewriting") $source/python/tests" ;;
esac
# Three of these parts run beside each other, and beside other tests: one thread each.
# shellcheck disable=SC2086  # names without spaces
OMP_NUM_THREADS=1 python -m pytest -q -p no:cacheprovider $chosen
