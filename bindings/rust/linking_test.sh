#!/bin/bash
# linking_test.sh ROOT: building without the library says where it was looked for; running with one of another ABI is
# an error that names both versions.
set -euo pipefail
root=$1
expect() { grep -q -e "$2" "$1" || { echo "expected '$2' in:"; cat "$1"; exit 1; }; }
log=$TEST_TMPDIR/log

# Building.
! INVAR_LIB_DIR=/nowhere cargo build --locked --package invar-sys 2>"$log"
expect "$log" 'libinvar 0.1.0 was not found'
expect "$log" 'INVAR_LIB_DIR: /nowhere/libinvar.so.0 is no file'
! env -u INVAR_LIB_DIR PKG_CONFIG_LIBDIR=/nowhere cargo build --locked --package invar-sys 2>"$log"
expect "$log" 'INVAR_LIB_DIR is not set'
expect "$log" 'pkg-config: '
expect "$log" 'set INVAR_LIB_DIR to the folder of libinvar.so.0'

# A library with the same functions and ABI 7.
fake=$TEST_TMPDIR/fake
mkdir -p "$fake"
{
  sed 's/.*/void &(void) {}/' "$root/c_api/symbols.txt" | grep -v -E '(abi_version|version_string)\('
  echo 'int invar_abi_version(void) { return 7; }'
  echo 'const char* invar_version_string(void) { return "7.1.2"; }'
} >"$fake/fake.c"
cc -shared -fPIC -w -Wl,-soname,libinvar.so.0 -o "$fake/libinvar.so.0" "$fake/fake.c"
cargo build --locked --package invar --example version
program=$CARGO_TARGET_DIR/debug/examples/version
"$program" | tee "$log"
expect "$log" '^invar 0.1'
! LD_LIBRARY_PATH=$fake "$program" 2>"$log"
expect "$log" 'the loaded libinvar 7.1.2 has abi 7, this crate 0.1.0 needs abi 0'
! LD_LIBRARY_PATH=/nowhere "$program" 2>"$log"
expect "$log" 'libinvar.so.0: cannot open shared object file'
echo "messages are right"
