// The chat template that belongs to a tokenizer.
// Thread rule: pure functions over their arguments.
#pragma once

#include <memory>
#include <string_view>

#include "core/base/status.h"
#include "core/text/template/chat_template.h"
#include "core/text/tokenizer.h"

namespace invar {

// Of chat_template.jinja, else of tokenizer_config.json; null when the tokenizer has none.
Result<std::shared_ptr<const ChatTemplate>> chat_template_of(const Tokenizer& tokenizer);
// A template given as text, with the tokenizer's special tokens.
Result<std::shared_ptr<const ChatTemplate>> chat_template_from(std::string_view source, const Tokenizer& tokenizer);

}  // namespace invar
