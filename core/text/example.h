// One training example out of a JSONL record, whatever its layout.
//
//   {"text": ...}                                          all tokens are trained
//   {"prompt": ..., "completion": ...}                     texts, or lists of messages
//   {"messages": [...], "tools": [...]}                    a conversation
//   {"conversations": [{"from": ..., "value": ...}]}       ShareGPT
//   {"instruction": ..., "input": ..., "output": ...}      Alpaca
//   {"input_ids": [...], "labels": [...]}                  already tokens; label -100 is not trained
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/template/value.h"

namespace invar {

enum class ExampleKind { kText, kPromptCompletion, kMessages, kTokens };

struct Example {
  ExampleKind kind = ExampleKind::kText;
  std::string text;                // kText
  std::string prompt, completion;  // kPromptCompletion
  chat::Value messages, tools;     // kMessages
  chat::Dict variables;            // "chat_template_kwargs"
  size_t context_messages = 0;     // messages before these are never trained: the prompt of a conversation
  std::vector<int32_t> ids;        // kTokens
  std::vector<bool> trained;       // kTokens: of each id
};

enum class ExampleFormat { kAuto, kText, kMessages, kPromptCompletion, kAlpaca, kShareGpt, kTokens };

// A record as an example: in kAuto by the keys it has. "text.bad_json", "text.missing_key", "text.not_a_string",
// "text.bad_record" say what is wrong; the caller puts file and line in front.
Result<Example> parse_example(std::string_view record, ExampleFormat format, std::string_view text_key);

const char* example_kind_name(ExampleKind kind);

}  // namespace invar
