#!/bin/bash
# The documentation was made, with every warning an error, and has a page for each public class.
set -euo pipefail
cd bindings/java
unzip -l javadoc.jar | awk '{print $NF}' >"$TEST_TMPDIR/pages"
pages=0
for file in $(grep -l -E '^public ' src/main/java/dev/invar/*.java); do
  name=$(basename "$file" .java)
  grep -qx "dev/invar/$name.html" "$TEST_TMPDIR/pages" || { echo "$name has no page"; exit 1; }
  pages=$((pages + 1))
done
echo "$pages pages"
[ $pages -gt 15 ]
