#!/bin/bash
# java_test.sh JAR OPTION... : JUnit 5 on the tests of a jar; what -Xcheck:jni prints about native code is a failure.
# Options starting with - go to Java, others choose test classes.
set -euo pipefail
jar=$1
shift
java_options=() select=()
for option in "$@"; do
  case "$option" in
    -*) java_options+=("$option") ;;
    *) select+=(--select-class "$option") ;;
  esac
done
share=/usr/share/java
classpath=$jar:$PWD/bindings/java/classes.jar:$share/protobuf.jar
for part in junit-platform-{console,launcher,engine,commons,reporting} junit-jupiter-{api,engine,params} \
  opentest4j opentest4j-reporting-{events,schema} apiguardian-api picocli univocity-parsers gson; do
  classpath=$classpath:$share/$part.jar
done
# The library reads no links that leave a folder, and a sandbox holds nothing else.
cp -rL tests/cases "$TEST_TMPDIR/cases"
log=$TEST_TMPDIR/log
reports=$TEST_TMPDIR/reports
status=0
java -XX:-UsePerfData -Xmx256m -Dfile.encoding=UTF-8 -Djava.io.tmpdir="$TEST_TMPDIR" \
  -Dinvar.library.path="$PWD/bindings/java/native" \
  -Dinvar.jar="$PWD/bindings/java/invar.jar" -Dinvar.other="$PWD/bindings/testdata/libother_abi.so" -Dinvar.cases="$TEST_TMPDIR/cases" "${java_options[@]}" \
  -cp "$classpath" org.junit.platform.console.ConsoleLauncher --disable-banner --disable-ansi-colors \
  --details tree --reports-dir "$reports" "${select[@]}" >"$log" 2>&1 || status=$?
cat "$log"
cp "$reports"/TEST-junit-jupiter.xml "${XML_OUTPUT_FILE:-/dev/null}" || true
if grep -n -A8 -E 'in native method|JNI call made|FATAL ERROR' "$log" >/dev/null; then
  echo "-Xcheck:jni has found something"
  status=1
fi
exit $status
