#!/bin/bash
# Writes code for every function that the public header ($2) declares.
#   table  a C++ header: kFunctions, each with a call whose arguments but the first are zero
#   stubs  a C source that defines each of them, whose debug information describes the whole interface
set -euo pipefail
gcc -E -P -x c -std=c11 "$2" | tr '\n' ' ' | tr ';' '\n' | awk -v mode="$1" '
  BEGIN {
    if (mode == "stubs") print "/* Generated. */\n#include \"invar/invar.h\""
    else print "// Generated.\nconst Function kFunctions[] = {"
  }
  /typedef|[{}]/ { next }
  match($0, /invar_[a-z0-9_]+ *\(.*\) *$/) {
    result = substr($0, 1, RSTART - 1)
    sub(/__attribute__\(\([a-z_]*\)\)/, "", result)
    gsub(/^ +| +$/, "", result)
    call = substr($0, RSTART)
    name = call; sub(/ *\(.*/, "", name)
    parameters = call; sub(/^[^(]*\(/, "", parameters); sub(/\) *$/, "", parameters)
    if (mode == "stubs") { print result " " name "(" parameters ") { __builtin_trap(); }"; next }
    count = parameters == "void" ? 0 : split(parameters, each, ",")
    handle = ""
    if (count > 0 && match(each[1], /invar_(status|bytes|runtime|cancel|model|session|tensor|optimizer|accumulator) *\*[^*]*$/)) {
      handle = substr(each[1], RSTART, RLENGTH); sub(/ *\*.*/, "", handle)
    }
    zeros = ""
    for (i = 1; i <= count; ++i)
      zeros = zeros (i > 1 ? ", " : "") (i == 1 && handle != "" ? "static_cast<" handle "*>(handle)" : "0")
    status = result ~ /^invar_status *\*$/
    printf "    {\"%s\", \"%s\", %s, [](void*%s) -> invar_status* { ", name, handle, status ? "true" : "false", handle == "" ? "" : " handle"
    if (status) printf "return %s(%s); }},\n", name, zeros
    else printf "%s%s(%s); return nullptr; }},\n", result == "void" ? "" : "(void)", name, zeros
  }
  END { if (mode == "table") print "};" }'
