#!/bin/sh
# The wheel in Debian's Python, beside Debian's torch and onnx, which share one libprotobuf.so.32:
# ours has another name. Every order of imports, with saves in between.
#
# usage: beside_debian.sh SOURCE_DIR WORK_DIR WHEEL_DIR PYTHON
set -eu
source=$1 work=$2 wheels=$3 python=$4

tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
wheel=$(echo "$wheels"/*.whl)
case $wheel in
  *-"$tag"-manylinux*) ;;
  *) echo "$(basename "$wheel") is not for $tag"; exit 77 ;;
esac
rm -rf "$work"
mkdir -p "$work/packages" "$work/out"
"$python" -m zipfile --extract "$wheel" "$work/packages"

orders=$(PYTHONPATH=$work/packages "$python" "$source/python/tests/import_orders.py" \
  "$source/fixtures/tiny" "$work/out" torch onnx onnx_external)
echo "$orders orders"
[ "$orders" = 6 ]
