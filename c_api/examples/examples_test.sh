#!/bin/bash
# The examples run and say what they should.
set -euo pipefail
train=$PWD/$1 convert=$PWD/$2
cp -rL "$3/input" "$TEST_TMPDIR/fp8"
cd "$TEST_TMPDIR"
for i in $(seq 300); do echo "the number $i is followed by the number $((i + 1))"; done >text.txt
"$train" text.txt | tee train.out
grep -q 'step  50  loss' train.out
grep -q '"text"' train.out
"$convert" fp8 bf16 >convert.out
grep -q '"passed": true' convert.out
! "$convert" absent x 2>error.out
grep -q 'absent' error.out
