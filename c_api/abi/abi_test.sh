#!/bin/bash
# The interface of the header against the reviewed baseline. Functions may be added; everything else that moves fails:
# run c_api/abi/update when the change is meant.
set -euo pipefail
stubs=$1 header=$2 baseline=$3
for tool in abidw abidiff; do
  command -v $tool >/dev/null || { echo "SKIPPED: $tool is not installed (package abigail-tools)"; exit 0; }
done
c_api/abi/describe.sh "$stubs" "$(dirname "$(dirname "$header")")" >now.abi
abidiff --no-added-syms "$baseline" now.abi && echo 'the interface is that of the baseline'

# The comparison sees what it must: a field moved, an argument changed, a function gone.
broken() {
  local what=$1
  shift
  mkdir -p broken/invar
  sed "$@" "$header" >broken/invar/invar.h
  cmp -s broken/invar/invar.h "$header" && { echo "the test's own change did nothing: $what"; exit 1; }
  c_api/tests/functions.sh stubs broken/invar/invar.h >broken.c
  c_api/abi/describe.sh broken.c broken >broken.abi
  if abidiff --no-added-syms now.abi broken.abi >/dev/null; then echo "not noticed: $what"; exit 1; fi
}
broken 'a field of another size' 's/^  int64_t sequence_length;/  int32_t sequence_length, width;/'
broken 'another result' 's/INVAR_API int32_t invar_dtype_bits/INVAR_API int64_t invar_dtype_bits/'
broken 'a function that is gone' '/invar_dtype_bits/d'
