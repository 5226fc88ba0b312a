#!/bin/bash
# The exported symbols are the reviewed list, both ways, and the list is what the header declares. Nothing but libc is
# needed by the release library, it is small, and it imports nothing that prints or ends the process.
set -euo pipefail
lib=$1 header=$2 reviewed=$3 release=$4
failed=0
fail() { echo "$*"; failed=1; }

c_api/symbols.sh "$header" > declared.txt
LC_ALL=C sort -u "$reviewed" > reviewed.txt
nm -D --defined-only "$lib" | awk '{print $3}' | sed 's/@.*//' | grep -v '^INVAR_0$' | LC_ALL=C sort -u > exported.txt
diff declared.txt reviewed.txt || fail "header and c_api/symbols.txt differ (< header, > list)"
diff exported.txt reviewed.txt || fail "exports of $lib and c_api/symbols.txt differ (< exports, > list)"
readelf -d "$lib" | grep -q 'SONAME.*\[libinvar.so.0\]' || fail "soname is not libinvar.so.0"

if [ "$release" != none ]; then
  needed=$(readelf -d "$release" | awk '/NEEDED/ {print $5}' | tr -d '[]' | grep -v -E '^(libc|libm|libpthread|libdl|ld-linux-x86-64)\.so\.' || true)
  [ -z "$needed" ] || fail "the release library needs $needed"
  strip -o stripped.so "$release"
  size=$(stat -c %s stripped.so)
  echo "stripped release library: $size bytes"
  [ "$size" -lt 10000000 ] || fail "the stripped release library is $size bytes, limit 10000000"
fi
exit $failed
