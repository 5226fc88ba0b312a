#!/bin/bash
# Trains a small model, exports it in every layout, and lets transformers load each: the logits are invar's own.
# All sizes are multiples of 128: transformers on a CPU finds the block by dividing the shape by the grid of scales.
# The python is $INVAR_PYTHON, else the first python3 on PATH that has the packages.
set -euo pipefail
invar=$PWD/$1 logits=$PWD/$2 compare=$PWD/$3
cd "$TEST_TMPDIR"
python=
for each in "${INVAR_PYTHON:-}" python3 python; do
  [ -n "$each" ] && command -v "$each" >/dev/null || continue
  if "$each" -c 'import torch, transformers, safetensors' 2>/dev/null; then python=$each; break; fi
done
if [ -z "$python" ]; then
  echo 'SKIPPED: no python with torch, transformers and safetensors; name one in INVAR_PYTHON'
  exit 0
fi
for i in $(seq 400); do echo "the number $i comes before the number $((i + 1))"; done >text.txt
"$invar" train --quiet output=run data.paths+=text.txt data.sequence_length=64 micro_batch=4 steps=30 threads=1 \
  model.hidden_size=256 model.num_hidden_layers=2 model.num_attention_heads=4 model.num_key_value_heads=2 \
  model.intermediate_size=384 model.initializer_range=0.08 optimizer.lr=3e-3 \
  'checkpoint.exports=["bf16","fp8_block","fp8_tensor","fp8_channel"]'
status=0
HF_HUB_OFFLINE=1 "$python" "$compare" "$logits" run/export || status=$?
[ $status -eq 77 ] && exit 0
exit $status
