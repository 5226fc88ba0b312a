#!/bin/bash
# A disk that is full or breaks, and a process that is killed, at every operation on files: what was there stays, what
# is new appears whole or not at all, the exit code and the message say so, and running again ends as if undisturbed.
set -uo pipefail
invar=$PWD/$1 fail_at=$PWD/$2
. tests/fault/common.sh
cp -rL tests/cases/autofp8-static-llama/input "$TEST_TMPDIR/fp8"
cd "$TEST_TMPDIR" || exit 1

# faulty HOW AT arguments: sets $code.
faulty() {
  local how=$1 at=$2
  shift 2
  code=0
  FAIL_HOW=$how FAIL_AT=$at LD_PRELOAD=$fail_at "$invar" "$@" >out.txt 2>err.txt || code=$?
}
# How many operations a whole run makes.
count() {
  FAIL_COUNT=$PWD/count.txt LD_PRELOAD=$fail_at "$invar" "$@" >out.txt 2>err.txt || fail "invar $*: does not run"
  cat count.txt
}
# About $2 numbers from 0 to $1 - 1, the last one among them.
some() { seq 0 $((($1 + $2 - 1) / $2)) $(($1 - 1)); echo $(($1 - 1)); }

# Conversion.
operations=$(count convert fp8 whole)
state whole >whole.txt
[ "$operations" -gt 10 ] || fail "only $operations operations were seen"
for how in nospace broken kill; do
  for at in $(some "$operations" 6); do
    faulty $how "$at" convert fp8 out
    if [ $how = kill ]; then
      [ $code -eq 137 ] || fail "kill at $at: exit code $code"
    elif [ $code -eq 0 ]; then
      # Flushing after the last rename may fail without harm; a full disk does not matter once all is written.
      [ -e out ] || fail "$how at $at: exit code 0 and no result"
    else
      [ $code -eq 4 ] || { fail "$how at $at: exit code $code, expected 4"; cat err.txt; }
      case $how in
        nospace) grep -qi 'no space left' err.txt || { fail "nospace at $at: the message does not say it"; cat err.txt; } ;;
        broken) grep -qi 'input/output error' err.txt || { fail "broken at $at: the message does not say it"; cat err.txt; } ;;
      esac
    fi
    if [ -e out ]; then
      state out | cmp -s - whole.txt || fail "$how at $at: half a result under the final name"
    elif [ $how != kill ]; then
      [ -z "$(find . -maxdepth 1 -name '*out*' ! -name out.txt)" ] || fail "$how at $at: left $(find . -maxdepth 1 -name '*out*')"
    fi
    [ -e out ] || expect 0 '' -- convert fp8 out
    state out | cmp -s - whole.txt || fail "$how at $at: another result the second time"
    rm -rf out .out* out.*partial* ./*.tmp* 2>/dev/null
  done
done

# Training with a checkpoint at every step.
text 200 >text.txt
train=(train output=run data.paths+=text.txt data.sequence_length=16 micro_batch=1 steps=4 checkpoint.save_every=1
  model.hidden_size=32 model.num_hidden_layers=1 model.num_attention_heads=2 model.intermediate_size=32 resume=auto threads=1
  'checkpoint.exports=["bf16"]')
operations=$(count "${train[@]}")
final() { (cd "$1/checkpoints/step-00000004" && sha256sum model.safetensors training/*.safetensors); }
final run >final.txt
[ "$(wc -l <final.txt)" -ge 4 ] || fail 'the undisturbed run has no checkpoint'
rm -rf run
for how in nospace kill; do
  for at in $(some "$operations" 6); do
    faulty $how "$at" "${train[@]}"
    if [ $how = kill ]; then
      [ $code -eq 137 ] || fail "train, kill at $at: exit code $code"
    elif [ $code -ne 0 ]; then
      [ $code -eq 4 ] || { fail "train, $how at $at: exit code $code, expected 4"; cat err.txt; }
      grep -qi 'no space left' err.txt || { fail "train, nospace at $at: the message does not say it"; cat err.txt; }
    fi
    # Whatever checkpoint there is can be read, and the run ends with the same bits.
    "$invar" "${train[@]}" >out.txt 2>err.txt || { fail "train after $how at $at: does not go on"; cat err.txt; }
    final run | cmp -s - final.txt || fail "train after $how at $at: another result"
    rm -rf run
  done
done
[ $failed -eq 0 ] && echo 'nothing lost, nothing half-written'
exit $failed
