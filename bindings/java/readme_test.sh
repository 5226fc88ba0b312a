#!/bin/bash
# The README's commands and programs, against the release, in a fresh folder. Maven runs without network, from what the
# user's local repository has; where that is not enough a line says so, and the way without Maven is the one that is run.
set -euo pipefail
page=$PWD/bindings/java/README.md
export RELEASE=$PWD/tools/dist/dist
# block LANGUAGE NUMBER: the page's first, second, ... block of a language.
block() {
  awk -v language="$1" -v number="$2" '$0 == "```" language {on = ++count == number; next} /^```$/ {on = 0} on' "$page"
}
for file in Hello.java pom.xml; do block "${file##*.}" 1 | diff - "bindings/java/examples/$file"; done

mkdir "$TEST_TMPDIR/hello"
cp -L bindings/java/examples/{Hello.java,pom.xml} "$TEST_TMPDIR/hello"
cd "$TEST_TMPDIR/hello"
# run NUMBER: a block of commands; the steps and a text must come.
run() {
  rm -rf run
  (set -e; eval "$(block sh "$1")") >out 2>&1 || return 1
  tail -n 3 out
  grep -q '^step 200 loss' out && sed '1,/^step 200 /d' out | grep -q -E 'sum|line|says'
}
eval "$(block sh 1)"
java() { command java -XX:-UsePerfData -Djava.io.tmpdir="$TEST_TMPDIR" "$@"; }
run 3 || { cat out; exit 1; }

command -v mvn >/dev/null || { echo "SKIPPED: no mvn"; exit 0; }
mkdir -p "$TEST_TMPDIR/home/.m2/repository"
[ ! -d "${HOME:?}/.m2/repository" ] || cp -rs "$HOME/.m2/repository/." "$TEST_TMPDIR/home/.m2/repository"
rm -rf "$TEST_TMPDIR/home/.m2/repository/dev/invar"
echo '<settings><offline>true</offline></settings>' >"$TEST_TMPDIR/home/.m2/settings.xml"
export MAVEN_OPTS="-XX:-UsePerfData -Duser.home=$TEST_TMPDIR/home -Djava.io.tmpdir=$TEST_TMPDIR"
run 2 && exit
grep -q -i -E 'offline mode|has not been downloaded|No plugin found for prefix' out || { cat out; exit 1; }
echo "SKIPPED: Maven's plugins are not in the local repository; the program ran without Maven"
