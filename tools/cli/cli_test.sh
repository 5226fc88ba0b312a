#!/bin/bash
# The tool as a script sees it: exit codes, standard output and standard error. Every check says what it expected.
set -uo pipefail
invar=$PWD/$1 cases=$TEST_TMPDIR/cases
# Copies: the sandbox has links, which a checkpoint folder may not leave.
mkdir "$cases"
for name in autofp8-static-llama bad-truncated-data bad-header-not-json peft-lora-llama; do cp -rL "$2/$name" "$cases"; done
cd "$TEST_TMPDIR"
failed=0

# expect CODE 'words that the error names' -- arguments
expect() {
  local code=$1 words=$2
  shift 3
  "$invar" "$@" >out.txt 2>err.txt
  local got=$?
  if [ "$got" -ne "$code" ]; then
    echo "invar $*: exit code $got, expected $code"; cat err.txt; failed=1
  fi
  if [ -n "$words" ] && ! grep -qF -- "$words" err.txt; then
    echo "invar $*: standard error does not say \"$words\":"; cat err.txt; failed=1
  fi
}
says() {
  if ! grep -qF -- "$1" out.txt; then echo "standard output does not say \"$1\":"; cat out.txt; failed=1; fi
}
silent() {
  if [ -s err.txt ]; then echo "standard error is not empty:"; cat err.txt; failed=1; fi
}

# A file of one header, then so many zero bytes.
safetensors() {
  local size=${#2}
  mkdir -p "$(dirname "$1")"
  {
    printf "\\x$(printf %02x $((size & 255)))\\x$(printf %02x $((size >> 8)))\\0\\0\\0\\0\\0\\0"
    printf %s "$2"
    head -c "$3" /dev/zero
  } >"$1"
}

expect 0 '' -- --help; says 'Exit codes:'
expect 0 '' -- --version; says '0.1.0'
expect 0 '' -- info; says 'device cpu:'; silent
expect 0 '' -- info --json; says '"abi"'
for command in info inspect convert verify diff calibrate export merge train eval generate; do
  expect 0 '' -- $command --help; says 'Examples:'; says '--json'; says '--quiet'
done
for command in 'config init' 'config validate' 'config explain' 'bench train' 'bench parity' 'bench convert' 'bench gemm' \
  'bench adamw' 'bench attention' 'bench generate'; do
  # shellcheck disable=SC2086
  expect 0 '' -- $command --help; says 'Examples:'
done

# Wrong usage.
expect 2 'subcommand is required' --
expect 2 '"trian" is no command' -- trian
expect 2 'source: must be given' -- convert
expect 2 'unknown argument' -- convert a b c
expect 2 'unknown argument' -- convert a b --no-such-flag
expect 2 'sourze: unknown field of ConvertConfig; did you mean "source"?' -- convert a b sourze=x
expect 2 'target: "bf61" is not one of' -- convert a b --to bf61
expect 2 'memory_bytes: 5 is not >= 1048576' -- convert a b --memory 5
expect 2 'model.path: must be given' -- generate --prompt x
expect 2 'no such config' -- config explain trian
expect 2 'unknown kind of config' -- train --config "$0"

# Configs.
expect 0 '' -- config init; cp out.txt run.yaml
expect 0 '' -- config validate run.yaml; says 'a valid train config'; silent
expect 0 '' -- config init convert --form json; cp out.txt convert.json
expect 2 'source: must be given' -- config validate convert.json --type convert
expect 0 '' -- config init --form text; cp out.txt run.textproto
expect 0 '' -- config validate run.textproto
expect 0 '' -- config explain train.optimizer.lr; says 'default 0.001'
printf 'optimizer:\n  lrr: 2\n' >bad.yaml
expect 2 'bad.yaml: optimizer.lrr: unknown field of OptimizerConfig; did you mean "lr"?' -- config validate bad.yaml
printf 'steps: many\n' >bad.yaml
expect 2 'steps: "many" is not an integer' -- config validate bad.yaml
printf 'steps: [\n' >bad.yaml
expect 2 'bad.yaml: not YAML' -- config validate bad.yaml
printf 'a: &a [1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]
e: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f]
h: &h [*g,*g,*g,*g,*g,*g,*g,*g]\ni: [*h,*h,*h,*h,*h,*h,*h,*h]\n' >bad.yaml
expect 2 'larger than 16 MiB once its references are resolved' -- config validate bad.yaml
expect 4 'cannot be read' -- train --config absent.yaml

# Checkpoints.
fp8=$cases/autofp8-static-llama/input
expect 0 '' -- inspect "$fp8"; says 'tensor_scale'; silent
expect 0 '' -- inspect "$fp8" --names '*q_proj.weight'; says 'q_proj.weight  fp8_e4m3 ['
expect 0 '' -- inspect "$fp8" --json; says '"quant_method": "fp8"'
expect 0 '' -- convert "$fp8" dry --dry-run; [ ! -e dry ] || { echo 'a dry run wrote'; failed=1; }
expect 0 '' -- convert "$fp8" bf16 --report report.json; says 're-encode check'; silent
grep -q '"passed": true' report.json || { echo 'no report'; failed=1; }
expect 0 '' -- convert "$fp8" proved --proof full --report report.html; says 'full proof: SHA-256'
grep -q '<svg' report.html || { echo 'no picture'; failed=1; }
expect 0 '' -- convert "$fp8" mixed --only '*.q_proj'; says 'kept'
expect 0 '' -- verify "$fp8" mixed --only '*.q_proj'
expect 2 'matches no quantised weight' -- convert "$fp8" none --only '*.nothing'
cp -r "$fp8" moved; chmod -R u+w moved
expect 0 '' -- convert moved in-place --remove-source; says 'convert.source_removed'
[ -z "$(find moved -name '*.safetensors')" ] || { echo 'the source is still there'; failed=1; }
expect 0 '' -- diff bf16 in-place
expect 0 '' -- verify "$fp8" bf16; says 'equal to the source'
expect 4 'output folder is not empty' -- convert "$fp8" bf16
cp -r bf16 damaged
# The last byte belongs to a weight.
size=$(stat -c %s damaged/model.safetensors)
printf '\x7b' | dd of=damaged/model.safetensors bs=1 seek=$((size - 1)) conv=notrunc status=none
expect 1 '' -- verify "$fp8" damaged; says 'DIFFERENT'
expect 4 'absent.txt: no such file' -- convert "$fp8" x --calibrate absent.txt
expect 4 'no such file or folder' -- convert absent x
expect 3 'file is truncated' -- convert "$cases/bad-truncated-data/input" x
expect 3 '' -- inspect "$cases/bad-header-not-json/input"
[ ! -e x ] || { echo 'a failed conversion left its output'; failed=1; }
expect 0 '' -- diff "$fp8" bf16 --tolerance 0.01; says 'identical'
expect 1 '' -- diff "$fp8" bf16; says 'DIFFERENT'
expect 1 '' -- diff bf16 damaged; says '1 of '; says 'first at ['; says 'DIFFERENT, first in '
expect 1 '' -- diff bf16 damaged --json; says '"first_different"'; says '"first_at"'
peft=$cases/peft-lora-llama/input
expect 0 '' -- merge "$peft/base" "$peft/adapter" merged; says 'q_proj.weight'; says 'rank 8, scaling 2'; says '2 of 11 tensors changed'
expect 1 '' -- diff "$peft/base" merged; says '11 tensors in both, 9 equal'
expect 4 'output folder is not empty' -- merge "$peft/base" "$peft/adapter" merged
expect 0 '' -- merge "$peft/base" "$peft/adapter" unchanged --weight 0
expect 0 '' -- diff "$peft/base" unchanged
expect 4 'adapter_config.json: is missing' -- merge "$peft/base" "$peft/base" x
[ ! -e x ] || { echo 'a failed merge left its output'; failed=1; }
# Other shapes, dtypes and names are told apart from other values.
safetensors a/model.safetensors '{"kept":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"old":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]},"packed":{"dtype":"F4","shape":[2],"data_offsets":[10,11]},"table":{"dtype":"F32","shape":[2,3],"data_offsets":[11,35]}}' 35
safetensors b/model.safetensors '{"kept":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"new":{"dtype":"BF16","shape":[1],"data_offsets":[8,10]},"packed":{"dtype":"F32","shape":[2],"data_offsets":[10,18]},"table":{"dtype":"F32","shape":[3,2],"data_offsets":[18,42]}}' 42
expect 1 '' -- diff a b
says 'old: only in A'; says 'new: only in B'
says 'table: shapes differ: fp32 [2, 3] in A, fp32 [3, 2] in B'
says 'packed: dtypes differ and cannot be compared: fp4_e2m1 in A, fp32 in B'
says '3 tensors in both, 1 equal, 1 of another shape, 1 of another dtype, 1 only in A, 1 only in B: DIFFERENT, first in new'
if grep -q -e SQNR -e 'elements differ' out.txt; then echo 'diff measures what it could not compare'; failed=1; fi
expect 1 '' -- diff a b --json; says '"difference": "shape"'; says '"first_different": "new"'
if grep -q -e '"different"' -e sqnr_db out.txt; then echo 'diff reports what it could not compare'; failed=1; fi
printf 'source: %s\ndestination: from-config\n' "$fp8" >convert.yaml
expect 0 '' -- convert --config convert.yaml target=fp32; [ -e from-config/config.json ] || { echo 'no output'; failed=1; }
expect 4 'no such model folder' -- generate --model absent --prompt x

# Training: a run that is interrupted saves, exits 130 and can be continued; its export is evaluated and generates.
for i in $(seq 400); do echo "the number $i comes before the number $((i + 1))"; done >text.txt
cat >train.yaml <<'END'
output: run
model: {hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 64}
data: {paths: [text.txt], sequence_length: 32}
micro_batch: 2
steps: 100000
checkpoint: {exports: [bf16]}
END
"$invar" train --config train.yaml >out.txt 2>err.txt &
child=$!
for _ in $(seq 100); do [ -s run/metrics.jsonl ] && break; sleep 0.05; done
kill -INT $child
wait $child
got=$?
[ $got -eq 130 ] || { echo "an interrupted run exits $got, expected 130"; cat err.txt; failed=1; }
grep -q 'resume=auto' err.txt || { echo 'an interrupted run does not say how to go on'; failed=1; }
says 'checkpoint: run/checkpoints/step-'
steps=$(grep -c '"step"' run/metrics.jsonl)
expect 4 'not empty' -- train --config train.yaml
expect 0 '' -- train --config train.yaml resume=auto steps=$((steps + 5)) --json; says '"resumed_from_step"'
expect 0 '' -- eval --model run/export/bf16 --data text.txt --sequence 32 --json; says '"perplexity"'
expect 0 '' -- generate --model run/export/bf16 --prompt 'the number' --tokens 8 --quiet; says 'the number'; silent
expect 0 '' -- export run exported --to fp8-channel --quiet; says 'quantised'; silent
expect 0 '' -- export run blocks --to fp8-block --quiet; says 'no multiple of 128'
[ $failed -eq 0 ] && echo 'all as expected'
exit $failed
