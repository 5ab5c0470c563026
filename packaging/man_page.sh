#!/bin/sh
# Writes the compressed man page of a command, made from what its --help prints.
# usage: man_page.sh COMMAND VERSION OUT.1.gz
set -eu
command=$1 version=$2 out=$3
name=$(basename "$command")
others=""
for other in save-external verify-external inspect-external cut-external; do
  [ "$other" = "$name" ] || others="$others${others:+, }$other(1)"
done
"$command" --help >"$out.help"
awk -v "version=$version" -v "others=$others" -f "$(dirname "$0")/man_page.awk" "$out.help" >"$out.roff"
gzip -9nc "$out.roff" >"$out"
rm "$out.help" "$out.roff"
