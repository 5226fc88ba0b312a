# What the tests of this folder share. The tool is $invar; everything happens below $TEST_TMPDIR.
failed=0
fail() { echo "$*"; failed=1; }

# expect CODE 'words that the error names' -- arguments
expect() {
  local code=$1 words=$2 got=0
  shift 3
  "$invar" "$@" >out.txt 2>err.txt || got=$?
  [ "$got" -eq "$code" ] || { fail "invar $*: exit code $got, expected $code"; cat err.txt; }
  if [ -n "$words" ] && ! grep -qF -- "$words" err.txt; then
    fail "invar $*: standard error does not say \"$words\":"; cat err.txt
  fi
}

# safetensors FILE HEADER BYTES: a file of one header, then so many zero bytes.
safetensors() {
  mkdir -p "$(dirname "$1")"
  { length ${#2}; printf %s "$2"; head -c "$3" /dev/zero; } >"$1"
}
# A number as eight little-endian bytes.
length() {
  local n=$1 i
  for i in 1 2 3 4 5 6 7 8; do printf "\\x$(printf %02x $((n & 255)))"; n=$((n >> 8)); done
}

# state FOLDER: names and contents of everything below it, one digest a line.
state() { (cd "$1" && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum); }

text() { local i; for i in $(seq "$1"); do echo "the number $i comes before the number $((i + 1))"; done; }
