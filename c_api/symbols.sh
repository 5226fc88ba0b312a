#!/bin/bash
# Prints every function that the public header declares, one a line, sorted.
set -euo pipefail
gcc -E -P -x c -std=c11 "$1" | tr '\n' ' ' | grep -o 'invar_[a-z0-9_]* *([^;{}]*) *;' | sed 's/ *(.*//' | LC_ALL=C sort -u
