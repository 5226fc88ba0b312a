#!/bin/bash
# Input that is wrong: each with its exit code, a message that names the file and what was expected, and nothing left
# behind.
set -uo pipefail
invar=$PWD/$1
. tests/fault/common.sh
cp -rL tests/cases/autofp8-static-llama/input "$TEST_TMPDIR/fp8"
cd "$TEST_TMPDIR" || exit 1
text 200 >text.txt
: >empty.txt
printf '\n\n' >blank.jsonl
model=(model.hidden_size=32 model.num_hidden_layers=1 model.num_attention_heads=2 model.intermediate_size=32)
small=(train output=run data.sequence_length=16 micro_batch=1 steps=2 threads=1)

# Missing folders and files.
expect 4 'absent: no such' -- inspect absent
expect 4 'absent: no such' -- convert absent out
expect 4 'absent' -- verify fp8 absent
expect 4 'absent' -- diff fp8 absent
expect 4 'absent' -- export absent out
expect 4 'absent: no such model folder' -- eval --model absent --data text.txt
expect 4 'absent: no such model folder' -- generate --model absent --prompt x
expect 4 'absent.txt: cannot open: No such file' -- "${small[@]}" "${model[@]}" data.paths+=absent.txt
expect 4 'absent' -- "${small[@]}" model.path=absent data.paths+=text.txt
expect 4 'never/checkpoints: no such folder' -- "${small[@]}" "${model[@]}" data.paths+=text.txt resume=always output=never
mkdir empty_folder
expect 3 'empty_folder: holds no weights' -- convert empty_folder out

# Damaged and hostile tensors. No header may ask for more than the file holds.
hostile() {
  local folder=$1 words=$2
  for command in "inspect $folder" "convert $folder out"; do
    # shellcheck disable=SC2086
    expect 3 "$words" -- $command
    grep -qF "$folder" err.txt || { fail "$command: does not name the file"; cat err.txt; }
  done
  [ ! -e out ] || fail "$folder: left a result"
}
good='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
safetensors short/model.safetensors "$good" 7; hostile short 'truncated'
safetensors long/model.safetensors "$good" 9; hostile long 'long/model.safetensors'
mkdir huge no_header; { length 9223372036854775807; printf %s "$good"; } >huge/model.safetensors; hostile huge 'header'
printf '\x05\x00' >no_header/model.safetensors; hostile no_header 'no_header/model.safetensors'
: >no_header/model.safetensors; hostile no_header 'no_header/model.safetensors'
safetensors product/model.safetensors '{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}' 8; hostile product '"a"'
safetensors negative/model.safetensors '{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}' 8; hostile negative '"a"'
safetensors backwards/model.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}' 8; hostile backwards '"a"'
safetensors overlap/model.safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 12; hostile overlap 'overlap/model.safetensors'
safetensors twice/model.safetensors '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}' 8; hostile twice '"a"'
safetensors unknown/model.safetensors '{"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}' 4; hostile unknown 'F99'
safetensors half/model.safetensors "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]" 8; hostile half 'half/model.safetensors'
nested=$(printf '[%.0s' $(seq 20000))
safetensors deep/model.safetensors "{\"a\":$nested" 8; hostile deep 'deep/model.safetensors'
# An index that names a file outside its folder, and one that is not there.
safetensors escape/model-00001-of-00001.safetensors "$good" 8
echo '{"metadata":{},"weight_map":{"a":"../fp8/model.safetensors"}}' >escape/model.safetensors.index.json
hostile escape '..'
safetensors lost/model-00001-of-00002.safetensors "$good" 8
echo '{"metadata":{},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}' >lost/model.safetensors.index.json
hostile lost 'model-00002-of-00002.safetensors'

# Configs of the tool.
expect 2 'steps: "many" is not an integer' -- "${small[@]}" "${model[@]}" data.paths+=text.txt steps=many
expect 2 'model.hidden_size' -- "${small[@]}" model.hidden_size=wide data.paths+=text.txt
printf 'model: 7\n' >wrong.yaml
expect 2 'wrong.yaml: model' -- train --config wrong.yaml
printf 'data: {paths: text.txt, sequence_length: [1]}\n' >wrong.yaml
expect 2 'wrong.yaml: data' -- train --config wrong.yaml
expect 2 'supported: ' -- "${small[@]}" model.family=mamba data.paths+=text.txt

# A model's own config.
expect 0 '' -- "${small[@]}" "${model[@]}" data.paths+=text.txt output=base 'checkpoint.exports=["bf16"]'
base=base/export/bf16
model_config() {
  rm -rf bad
  cp -r "$base" bad
  sed -i "$1" bad/config.json
  ! cmp -s bad/config.json "$base/config.json" || fail "the test's own change did nothing: $1"
}
# wrong_model WORDS: from every command that reads a model.
wrong_model() {
  expect 3 "$1" -- eval --model bad --data text.txt --sequence 16
  expect 3 "$1" -- generate --model bad --prompt x
  expect 3 "$1" -- "${small[@]}" model.path=bad data.paths+=text.txt
  grep -qF 'bad' err.txt || { fail "does not name the folder:"; cat err.txt; }
  [ ! -e run/train_config.json ] || fail 'a failed start left its config'
}
model_config 's/"model_type": *"llama"/"model_type": "mamba"/'; wrong_model 'mamba'
grep -q 'llama' err.txt || { fail 'the message does not list the supported types'; cat err.txt; }
model_config 's/"hidden_size": *32/"hidden_size": "wide"/'; wrong_model 'hidden_size'
model_config 's/"hidden_size": *32/"hidden_size": 0/'; wrong_model 'hidden_size'
model_config 's/"num_hidden_layers": *1/"num_hidden_layers": 2/'; wrong_model 'is missing'
model_config 's/"num_hidden_layers": *1/"num_hidden_layers": 0/'; wrong_model 'num_hidden_layers'
model_config 's/"vocab_size": *[0-9]*/"vocab_size": 300/'; wrong_model 'vocab_size'
model_config 's/^{/{{/'; wrong_model 'config.json'
model_config '1,$d'; wrong_model 'config.json'

# Vocabulary: a tokenizer with more tokens than the model has rows.
expect 3 'vocab' -- "${small[@]}" "${model[@]}" model.vocab_size=100 data.paths+=text.txt
# Text.
expect 3 'empty.txt' -- "${small[@]}" "${model[@]}" data.paths+=empty.txt
expect 3 'blank.jsonl' -- "${small[@]}" "${model[@]}" data.paths+=blank.jsonl
expect 3 'empty.txt' -- eval --model "$base" --data empty.txt --sequence 16
echo 'a few words' >few.txt
expect 3 'sequence' -- "${small[@]}" "${model[@]}" data.paths+=few.txt
expect 3 'sequence' -- eval --model "$base" --data few.txt --sequence 16
printf 'good\xff\xfebad\n' >invalid.txt
expect 3 'invalid.txt' -- "${small[@]}" "${model[@]}" data.paths+=invalid.txt
printf '{"text": "x"}\n{"text": 5}\n' >mixed.jsonl
expect 3 'mixed.jsonl' -- "${small[@]}" "${model[@]}" data.paths+=mixed.jsonl

# Output that is already there is never touched.
mkdir -p full; echo mine >full/file
state full >full.txt
expect 4 'full: output folder is not empty' -- convert fp8 full
expect 4 'full' -- "${small[@]}" "${model[@]}" data.paths+=text.txt output=full
expect 4 'full' -- export base full
expect 4 'full/file' -- convert fp8 full/file
state full | cmp -s - full.txt || fail 'an existing folder was changed'
[ ! -e out ] || fail 'something was left in out'
[ $failed -eq 0 ] && echo 'all as expected'
exit $failed
