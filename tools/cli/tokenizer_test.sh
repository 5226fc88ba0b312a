#!/bin/bash
# Tokenizer and data commands as their user runs them: $1 the tool, $2 tests/cases.
set -euo pipefail
invar=$PWD/$1
cases=$PWD/$2
work=${TEST_TMPDIR:-$(mktemp -d)}
cd "$work"
fail() { echo "FAIL: $*" >&2; exit 1; }
expect() { [ "$2" = "$3" ] || fail "$1: got '$2', expected '$3'"; }
code_of() { local code=0; "$@" >out.txt 2>err.txt || code=$?; echo "$code"; }

tokenizer=$cases/tokenizers/small-llama3
printf '%s\n' '"Hello, world!"' '"caf\u00e9 \ud83d\ude00\n"' '""' >strings.jsonl
"$invar" tokenizer encode --tokenizer "$tokenizer" --jsonl <strings.jsonl >ids.jsonl
expect "special token around an empty text" "$(sed -n 3p ids.jsonl)" "[0]"
"$invar" tokenizer encode --tokenizer "$tokenizer/tokenizer.json" --jsonl --no-special <strings.jsonl >plain.jsonl
expect "nothing around it" "$(sed -n 3p plain.jsonl)" "[]"
"$invar" tokenizer decode --tokenizer "$tokenizer" --jsonl --no-special <ids.jsonl >texts.jsonl
expect "texts come back" "$(cat texts.jsonl)" "$(printf '"Hello, world!"\n"café 😀\\n"\n""')"
"$invar" tokenizer decode --tokenizer "$tokenizer" --jsonl <ids.jsonl | sed -n 1p >kept.jsonl
expect "special tokens are shown" "$(cat kept.jsonl)" '"<|begin_of_text|>Hello, world!"'
expect "plain form" "$(printf 'Hello' | "$invar" tokenizer encode --tokenizer "$tokenizer" --no-special |
  "$invar" tokenizer decode --tokenizer "$tokenizer")" "Hello"
expect "line of the error" "$(code_of "$invar" tokenizer encode --tokenizer "$tokenizer" --jsonl <<<'5')" 3
grep -q 'standard input:1: expected a JSON string' err.txt || fail "$(cat err.txt)"
expect "id out of range" "$(code_of "$invar" tokenizer decode --tokenizer "$tokenizer" --jsonl <<<'[99999]')" 3
grep -q 'token 0 is 99999' err.txt || fail "$(cat err.txt)"
sed 's/"type":"BPE"/"type":"WordPiece"/' "$tokenizer/tokenizer.json" >other.json
[ "$(code_of "$invar" tokenizer encode --tokenizer other.json)" != 0 ] || fail "another model was accepted"
grep -q '"WordPiece" is not supported; supported: BPE, Unigram' err.txt || fail "$(cat err.txt)"

# A new vocabulary, and the same text back.
"$invar" tokenizer train --data "$cases/tokenizers/trainer/corpus.txt" --size 600 --out mine --quiet >train.txt
grep -q '600 tokens, 343 merges' train.txt || fail "$(cat train.txt)"
"$invar" tokenizer encode --tokenizer mine <"$cases/tokenizers/trainer/corpus.txt" >corpus.ids
"$invar" tokenizer decode --tokenizer mine <corpus.ids | head -c -1 | cmp - "$cases/tokenizers/trainer/corpus.txt" ||
  fail "the corpus does not come back"

# Conversations.
cat >talk.json <<'JSON'
[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]
JSON
"$invar" tokenizer chat --tokenizer mine --template "$cases/chat_templates/chatml.jinja" --messages talk.json >chat.txt
grep -q '<|im_start|>assistant' chat.txt || fail "$(cat chat.txt)"
expect "no template" "$(code_of "$invar" tokenizer chat --tokenizer mine --messages talk.json)" 3
printf '{"messages": %s}\n{"prompt": "2+2=", "completion": "4"}\n' "$(cat talk.json)" >data.jsonl
"$invar" data preview --data data.jsonl --tokenizer mine/tokenizer.json \
  --chat-template "$cases/chat_templates/chatml.jinja" data.heldout_fraction=0 --quiet >preview.txt
grep -q '2+2=\[\[4<|endoftext|>\]\]' preview.txt || fail "$(cat preview.txt)"
grep -q '\[\[Hello!<|im_end|>\]\]' preview.txt || fail "$(cat preview.txt)"
grep -q '2 documents' preview.txt || fail "$(cat preview.txt)"
printf '{"input_ids": [1, 2], "labels": [-100, -100]}\n' >masked.jsonl
[ "$(code_of "$invar" data preview --data masked.jsonl --tokenizer mine)" != 0 ] || fail "masked data was accepted"
grep -q 'masked.jsonl:1' err.txt || fail "$(cat err.txt)"
echo "all as expected"
