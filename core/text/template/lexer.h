// A chat template cut into text, tags and the tokens inside tags, with white space around tags removed as Jinja does
// with trim_blocks and lstrip_blocks: a block tag takes the spaces before it on its line and the line end behind it.
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace invar::chat {

enum class TokenKind {
  kText,        // outside of tags
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // one of + - * / // % ** ~ == != < <= > >= = . , : | ( ) [ ] { }
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // strings without quotes and escapes
  int line = 0;
};

// "template.syntax" names the line.
Result<std::vector<Token>> tokenize_template(std::string_view source);

Status syntax_error(int line, std::string what);

}  // namespace invar::chat
