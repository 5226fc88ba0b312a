#!/bin/bash
# Runs one gate of tools/bazel/invar.bzl:
#   run.sh TOOL GATE CHECKPOINTS FOLDER... FILES FILE... ARGUMENT...
# CHECKPOINTS and FILES are counts. Reports go to the test's undeclared outputs.
set -euo pipefail
tool=$PWD/$1 gate=$2 count=$3
shift 3
work=${TEST_TMPDIR:?} reports=${TEST_UNDECLARED_OUTPUTS_DIR:-$TEST_TMPDIR}
checkpoints=() files=()
for ((i = 0; i < count; ++i)); do
  cp -rL --reflink=auto "$1" "$work/checkpoint$i"
  chmod -R u+w "$work/checkpoint$i"
  checkpoints+=("$work/checkpoint$i")
  shift
done
count=$1
shift
for ((i = 0; i < count; ++i)); do files+=("$PWD/$1"); shift; done

fail() { echo "FAILED: $*" >&2; exit 1; }

case "$gate" in
  convert)
    to=$1
    shift
    result=$work/result
    "$tool" convert "${checkpoints[0]}" "$result" --quiet --to "$to" --report "$reports/convert.json" || fail "conversion"
    "$tool" verify "${checkpoints[0]}" "$result" --quiet || fail "the result is not what its source gives"
    [ ${#files[@]} -gt 0 ] || exit 0
    "$tool" calibrate "${checkpoints[0]}" "$result" --quiet --data "${files[@]}" "$@" >"$work/calibrate.txt" || {
      cat "$work/calibrate.txt"
      fail "calibration"
    }
    cat "$work/calibrate.txt"
    ;;
  diff)
    "$tool" diff "${checkpoints[@]}" --quiet "$@" || fail "the checkpoints differ"
    ;;
  checkpoint)
    # "NAME  DTYPE [SHAPE]  RULE  FILE", after the totals.
    "$tool" inspect "${checkpoints[0]}" --quiet --names '*' | sed -n 's/^\([^ ].*\)  \([a-z0-9_]* \[[0-9, ]*\]\)  .*/\1 \2/p' |
      LC_ALL=C sort >"$reports/tensors.txt"
    LC_ALL=C sort "${files[0]}" | diff - "$reports/tensors.txt" >&2 || fail "tensors differ from the pinned list (< pinned, > stored)"
    echo "$(wc -l <"$reports/tensors.txt") tensors as pinned"
    ;;
  train)
    limit=$1
    shift
    paths=$(printf ',"%s"' "${files[@]:1}")
    "$tool" train --quiet --json --config "${files[0]}" "output=$work/run" "data.paths=[${paths:1}]" "$@" >"$reports/train.json" ||
      fail "training"
    loss=$(grep -o '"tail_loss": *[0-9.eE+-]*' "$reports/train.json" | sed 's/.*: *//')
    echo "final loss $loss, limit $limit"
    awk -v loss="$loss" -v limit="$limit" 'BEGIN {exit !(loss != "" && loss <= limit)}' || fail "final loss $loss is above $limit"
    ;;
  *) fail "unknown gate $gate" ;;
esac
