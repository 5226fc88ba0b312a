#!/bin/bash
# The program in the README is examples/Hello.java, and gives text after its steps.
set -euo pipefail
root=$PWD
cd bindings/java
awk '/^```java$/ {on = 1; next} /^```$/ {on = 0} on' README.md | diff - examples/Hello.java
cp -L examples/Hello.java "$TEST_TMPDIR"
cd "$TEST_TMPDIR"
java -XX:-UsePerfData -Dinvar.library.path="$root/bindings/java/native" \
  -cp "$root/bindings/java/classes.jar:/usr/share/java/protobuf.jar" Hello.java >out
grep -q '^step 150 loss' out
[ -n "$(sed '1,/^step 150 /d' out)" ]
