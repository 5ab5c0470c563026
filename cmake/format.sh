#!/bin/sh
# Formats all own sources. usage: format.sh [--dry-run -Werror]
set -eu
cd "$(dirname "$0")/.."
find include src tools python tests benchmarks examples -name '*.cc' -o -name '*.h' | sort |
  xargs clang-format-14 -i "$@"
