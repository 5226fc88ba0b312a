#!/bin/bash
# The exported symbols are the reviewed list, both ways, and the list is what the header declares. What the released
# library needs, and its size, is tested in tools/dist.
set -euo pipefail
lib=$1 header=$2 reviewed=$3
failed=0
fail() { echo "$*"; failed=1; }

c_api/symbols.sh "$header" > declared.txt
LC_ALL=C sort -u "$reviewed" > reviewed.txt
nm -D --defined-only "$lib" | awk '{print $3}' | sed 's/@.*//' | grep -v '^INVAR_0$' | LC_ALL=C sort -u > exported.txt
diff declared.txt reviewed.txt || fail "header and c_api/symbols.txt differ (< header, > list)"
diff exported.txt reviewed.txt || fail "exports of $lib and c_api/symbols.txt differ (< exports, > list)"
readelf -d "$lib" | grep "SONAME.*\[libinvar.so.0\]" >/dev/null || fail "soname is not libinvar.so.0"

exit $failed
