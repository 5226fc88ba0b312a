#!/bin/bash
# Which function of the header is reachable from which language:
#   parity.sh           prints the table (markdown)
#   parity.sh --check   the same, and fails where a function is missing and exceptions.txt gives no reason
#
# Reachable means: Go and Java: the method of bindings/swig that calls the function, found by its text, is called by
# the language's own layer (or the function is by name, in typemaps and C parts). Rust: the layer above invar-sys names it.
# C++: the wrapper headers name it.
set -euo pipefail
cd "${PARITY_ROOT:-$(dirname "${BASH_SOURCE[0]}")/../..}"
here=bindings/parity

# FUNCTION CLASS METHOD for every call of the interface; CLASS is "-" for functions without a handle. Helpers of host.i
# stand for the function they call.
interface() {
  awk '
    /^%extend / { class = $2; method = "" }
    /^}/ { class = ""; method = "" }
    /^%rename\(/ && match($0, /\([A-Za-z]+\)/) { sub(/;/, "", $2); print $2, "-", substr($0, RSTART + 1, RLENGTH - 2); next }
    class != "" && /CONFIG_TO_REPORT\(/ {
      split($0, part, /[(), ]+/); print part[4], class, part[3]; next
    }
    class != "" && /^  [^ ].*\(/ && !/^  \/\*/ {
      head = $0; sub(/\(.*/, "", head); n = split(head, word, /[ *]+/); method = word[n]
    }
    class != "" && method != "" {
      rest = $0
      while (match(rest, /(invar_[a-z0-9_]+|create_runtime|forward_backward)\(/)) {
        called = substr(rest, RSTART, RLENGTH - 1)
        if (called == "create_runtime") called = "invar_runtime_create"
        if (called == "forward_backward") called = "invar_session_forward_backward"
        print called, class, method
        rest = substr(rest, RSTART + RLENGTH)
      }
    }' bindings/swig/invar.i | sed 's/;$//'
}

go_text=$(cat bindings/go/*.go bindings/go/internal/raw/structs.go bindings/go/internal/raw/callbacks.go | grep -v '^ *//')
java_text=$(cat $(find bindings/java/src/main/java -name '*.java'))
java_c=$(cat bindings/swig/invar_java.swg $(find bindings/java/src/main/c -type f))
cpp_text=$(cat c_api/include/invar/*.hpp | grep -v '^ *//')
rust_text=$(cat $(find bindings/rust/invar/src -name '*.rs'))
calls=$(interface)

has() { grep -q -E "$2" <<<"$1"; }
upper() { echo "$(tr '[:lower:]' '[:upper:]' <<<"${1:0:1}")${1:1}"; }

reach_go() {
  has "$go_text" "C\.$1\(" && return
  local class method
  while read -r class method; do
    case $method in
      '') continue ;;
      "$class") has "$go_text" "raw\.New$class\b" && return ;;
      "~$class") has "$go_text" "(raw\.)?Delete$class\b" && return ;;
      *)
        if [ "$class" = - ]; then has "$go_text" "raw\.$(upper "$method")\(" && return
        else has "$go_text" "(raw\.$class$(upper "$method")|raw\.$class\.$(upper "$method")|\w\.$(upper "$method"))\b" && return; fi ;;
    esac
  done < <(awk -v f="$1" '$1 == f {print $2, $3}' <<<"$calls")
  return 1
}

reach_java() {
  has "$java_c" "\b$1\(" && return
  local class method
  while read -r class method; do
    case $method in
      '') continue ;;
      "$class") has "$java_text" "\b$class::new|new (dev\.invar\.raw\.)?$class\(" && return ;;
      "~$class") has "$java_text" "raw\.$class::delete|\.delete\(" && return ;;
      *) has "$java_text" "(\.|::)$method\b" && return ;;
    esac
  done < <(awk -v f="$1" '$1 == f {print $2, $3}' <<<"$calls")
  return 1
}

reach_cpp() { has "$cpp_text" "\b$1\b"; }
reach_rust() { has "$rust_text" "\b$1\b"; }

missing=0
reason() { grep -v '^#' $here/exceptions.txt | grep -E "^$1 ([a-z,]*,)?(all|$2)(,[a-z,]*)?:" | head -n 1 | sed 's/^[^:]*: *//'; }
cell() {
  if "reach_$2" "$1"; then echo yes; return; fi
  local why
  why=$(reason "$1" "$2" || true)
  if [ -n "$why" ]; then echo "no: $why"; else echo MISSING; fi
}

echo '| function | C++ | Go | Java | Rust |'
echo '| --- | --- | --- | --- | --- |'
while read -r function; do
  row="$(cell "$function" cpp) | $(cell "$function" go) | $(cell "$function" java) | $(cell "$function" rust)"
  echo "| \`$function\` | $row |"
  case $row in *MISSING*) missing=$((missing + 1)) ;; esac
done <c_api/symbols.txt
echo
echo "$(wc -l <c_api/symbols.txt) functions, $missing missing somewhere without a reason"
[ "${1:-}" != --check ] || [ "$missing" = 0 ]
