#!/bin/bash
# Every function of the header is reachable from Java: the wrapper calls it, and a class of dev.invar uses the wrapper's
# method. What is not stands in parity_exceptions.txt with its reason, and nothing else stands there.
set -euo pipefail
work=$TEST_TMPDIR
exceptions=bindings/java/parity_exceptions.txt

# Functions that the C code below Java calls. SWIG's own functions are Java_*; host.i and invar_java.h call the rest.
sed 's,/\*.*\*/,,' bindings/java/invar_wrap.c bindings/java/src/main/c/invar_java.h | grep -o 'invar_[a-z0-9_]*(' | tr -d '(' |
  sort -u >"$work/called"

# Methods of the raw classes, and those that dev.invar refers to (constant pools name method references too).
unzip -q -o bindings/java/classes.jar 'dev/invar/*.class' -d "$work/classes" -x 'dev/invar/v1/*'
javap -J-XX:-UsePerfData -cp bindings/java/classes.jar dev.invar.raw.NativeJNI | sed -n 's/.* native .* \([A-Za-z0-9_]*\)(.*/\1/p' |
  sort -u >"$work/natives"
# In one go; find keeps nested classes.
find "$work/classes/dev/invar" -maxdepth 1 -name '*.class' -print0 | xargs -0 javap -J-XX:-UsePerfData -v -p |
  grep -o 'dev/invar/raw/[A-Za-z]*\.[A-Za-z"<>_]*' | sed 's,dev/invar/raw/,,; s/"<init>"/new/' | sort -u >"$work/used"

# NativeJNI's name of a method: new_X, delete_X, X_field_get, X_method, function.
missing=0 reached=0
tell() { echo "$1: $2" >&2; missing=$((missing + 1)); }
while read -r name; do
  case $name in
    new_*) wanted=${name#new_}.new ;;
    delete_*) wanted=${name#delete_}.delete ;;
    *_get) field=${name#*_}; field=${field%_get}; wanted=${name%%_*}.get${field^} ;;
    *_*) wanted=${name/_/.} ;;
    *) wanted=Native.$name ;;
  esac
  if grep -qxF "$wanted" "$work/used"; then
    grep -q "^$wanted " "$exceptions" && tell "$wanted" "is used, and stands in $exceptions"
    reached=$((reached + 1))
  else
    grep -q "^$wanted " "$exceptions" || tell "$wanted" "no class of dev.invar uses it"
  fi
done <"$work/natives"

functions=0
while read -r name; do
  functions=$((functions + 1))
  if grep -qxF "$name" "$work/called"; then
    grep -q "^$name " "$exceptions" && tell "$name" "is called, and stands in $exceptions"
  else
    grep -q "^$name " "$exceptions" || tell "$name" "Java cannot reach it"
  fi
done <c_api/symbols.txt

echo "$functions functions of the header, $(grep -c '^invar_' "$exceptions") of them not needed from Java; $reached raw methods used"
[ "$functions" -gt 50 ] && [ "$reached" -gt 50 ] && [ $missing = 0 ]
