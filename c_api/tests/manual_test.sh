#!/bin/bash
# The header is the manual: every function has a comment of its own that says what it is for, it or its section says
# since when, and what a caller gets through a pointer to a pointer is called owned or borrowed there. The C in the
# topic pages compiles.
set -euo pipefail
header=$1
shift
awk '
  function problem(what) { print name ": " what; bad = 1 }
  /^\/\* ---- / { section = "" }
  /^\/\*/ { comment = ""; inside = 1 }
  inside {
    line = $0; gsub(/^ ?\*|\/\*|\*\//, " ", line); comment = comment " " line
    if (/\*\//) { inside = 0; fresh = 1; section = section " " comment }
    next
  }
  /^INVAR_API/ {
    text = $0
    while (text !~ /;/) { getline line; text = text " " line }
    match(text, /invar_[a-z0-9_]+\(/); name = substr(text, RSTART, RLENGTH - 1); ++functions
    if (name !~ /_release$/) {
      if (!fresh) problem("has no comment of its own")
      purpose = comment; gsub(/Since +[0-9.]+/, "", purpose)
      if (fresh && purpose !~ /[a-z][a-z][a-z]/) problem("does not say what it is for")
      if (section !~ /Since +[0-9]+\.[0-9]+/) problem("neither it nor its section says since when")
      if (text ~ /\*\*/ && comment !~ /owned|borrowed/ && section !~ /owned|borrowed/) problem("does not say who owns its output")
    }
    fresh = 0
    next
  }
  /^[^ ]/ { fresh = 0 }
  END { print functions " functions"; exit bad || functions < 90 }' "$header"

for page in "$@"; do
  awk -v page="$(basename "$page" .md)" '
    /^```c$/ { ++n; file = page "_" n ".c"; print "#include <stdio.h>\n#include \"invar/invar.h\"\n" > file; on = 1; next }
    /^```$/ { on = 0; next }
    on { print > file }' "$page"
  ls "$(basename "$page" .md)"_*.c >/dev/null 2>&1 || { echo "$page: has no example"; exit 1; }
done
for example in *_[0-9].c; do
  gcc -std=c11 -Wall -Wextra -Werror -I"$(dirname "$(dirname "$header")")" -fsyntax-only "$example"
done
echo "the examples compile"
