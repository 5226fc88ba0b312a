#!/bin/bash
# The exported symbols are the reviewed list, both ways, and the list is what the header declares. What the released
# library needs, and its size, is tested in tools/dist.
set -euo pipefail
lib=$1 header=$2 reviewed=$3 experimental=$4
failed=0
fail() { echo "$*"; failed=1; }

c_api/symbols.sh "$header" > declared.txt
LC_ALL=C sort -u "$reviewed" > reviewed.txt
exports() { nm -D --defined-only --with-symbol-versions "$lib" | awk '{print $3}' | sed -n "s/@@*$1\$//p" | LC_ALL=C sort -u; }
exports INVAR_0 | grep -v '^INVAR_0$' > exported.txt
diff declared.txt reviewed.txt || fail "header and c_api/symbols.txt differ (< header, > list)"
diff exported.txt reviewed.txt || fail "exports of $lib and c_api/symbols.txt differ (< exports, > list)"
# What is not promised: in a version node of its own, and declared only for those who ask.
gcc -E -P -x c -std=c11 -DINVAR_EXPERIMENTAL "$header" >asked.h
{ c_api/symbols.sh asked.h | diff - declared.txt || true; } | sed -n 's/^< //p' >declared_experimental.txt
exports INVAR_EXPERIMENTAL | grep -v '^INVAR_EXPERIMENTAL$' >exported_experimental.txt
diff declared_experimental.txt "$experimental" || fail "header and c_api/symbols_experimental.txt differ (< header, > list)"
diff exported_experimental.txt "$experimental" || fail "exports and c_api/symbols_experimental.txt differ (< exports, > list)"
readelf -d "$lib" | grep "SONAME.*\[libinvar.so.0\]" >/dev/null || fail "soname is not libinvar.so.0"

exit $failed
