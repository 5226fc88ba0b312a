#!/bin/bash
# Prints what the public header promises to a compiled host, as abidw sees it: functions, structs, offsets, types.
# The functions are stubs, compiled from the header alone: that the library exports them is tested elsewhere.
#   describe.sh STUBS.c INCLUDE_FOLDER
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -std=c11 -g -gdwarf-4 -fPIC -shared -fdebug-prefix-map="$(dirname "$1")=." -fdebug-prefix-map="$2=." \
  -I"$2" -o "$work/invar.so" "$1"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs "$work/invar.so"
