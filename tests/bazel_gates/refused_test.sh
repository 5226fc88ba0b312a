#!/bin/bash
# Gates fail when they should, and say which tensor or number did it.
set -uo pipefail
failed=0
refuses() {
  local words=$1 gate=$2 text
  if text=$(TEST_TMPDIR=$(mktemp -d -p "$TEST_TMPDIR") "$gate" 2>&1); then echo "$gate passed"; failed=1; fi
  grep -qF -- "$words" <<<"$text" || { echo "$gate does not say \"$words\":"; echo "$text"; failed=1; }
}
refuses "model.layers.0.mlp.down_proj.weight" "$1"
refuses "is above 0.5" "$2"
exit $failed
