#!/bin/bash
# Which function of the header is reachable from which language:
#   parity.sh            prints the table (markdown)
#   parity.sh --summary  prints it by kind of object, as the README has it
#   parity.sh --check    the table; fails where a function is missing and exceptions.txt gives no reason, and where the
#                        README has another summary
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

reason() { grep -v '^#' $here/exceptions.txt | grep -E "^$1 ([a-z,]*,)?(all|$2)(,[a-z,]*)?:" | head -n 1 | sed 's/^[^:]*: *//'; }
cell() {
  if "reach_$2" "$1"; then echo yes; return; fi
  local why
  why=$(reason "$1" "$2" || true)
  if [ -n "$why" ]; then echo "no: $why"; else echo MISSING; fi
}

table=$(while read -r function; do
  echo "| \`$function\` | $(cell "$function" cpp) | $(cell "$function" go) | $(cell "$function" java) | $(cell "$function" rust) |"
done <c_api/symbols.txt)
missing=$(grep -c MISSING <<<"$table" || true)

# One line for each object of the interface ("invar_tensor_*"): how many of its functions each language reaches; then what
# is left out, with its reason.
summary() {
  echo '| functions | C | C++ | Go | Java | Rust |'
  echo '| --- | --- | --- | --- | --- | --- |'
  awk -F' *[|] *' '
    { split($2, word, "_"); kind = word[2]; gsub(/`/, "", kind); count[kind]++
      for (i = 3; i <= 6; ++i) reached[kind, i] += $i == "yes" }
    END {
      for (kind in count) {
        if (count[kind] < 2) { alone += count[kind]; for (i = 3; i <= 6; ++i) single[i] += reached[kind, i]; continue }
        printf "| `invar_%s_*` | %d", kind, count[kind]
        for (i = 3; i <= 6; ++i) printf " | %d", reached[kind, i]
        print " |"
      }
      printf "| others | %d", alone
      for (i = 3; i <= 6; ++i) printf " | %d", single[i]
      print " |"
    }' <<<"$table" | LC_ALL=C sort
  echo
  echo 'Left out, with the reason:'
  echo
  awk -F' *[|] *' 'BEGIN { split("C++ Go Java Rust", language, " ") }
    { for (i = 3; i <= 6; ++i) if ($i ~ /^no: /) {
        reason = substr($i, 5); key = $2 SUBSEP reason
        if (!(key in names)) { order[++n] = key; what[key] = $2; why[key] = reason }
        names[key] = names[key] (names[key] == "" ? "" : ", ") language[i - 2]
      } }
    END { for (k = 1; k <= n; ++k) printf "- %s in %s: %s\n", what[order[k]], names[order[k]], why[order[k]] }' <<<"$table"
}

if [ "${1:-}" = --summary ]; then
  summary
  exit
fi
echo '| function | C++ | Go | Java | Rust |'
echo '| --- | --- | --- | --- | --- |'
echo "$table"
echo
echo "$(wc -l <c_api/symbols.txt) functions, $missing missing somewhere without a reason"
if [ "${1:-}" = --check ]; then
  [ "$missing" = 0 ] || exit 1
  while IFS= read -r line; do
    if [ -n "$line" ] && ! grep -qxF -e "$line" README.md; then
      echo "README.md lacks the line: $line"
      echo "its table is what bindings/parity/parity.sh --summary prints"
      exit 1
    fi
  done < <(summary)
fi
