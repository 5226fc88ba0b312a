// Chat templates: a conversation as the text a model was trained on.
//
//   INVAR_ASSIGN(auto chat, ChatTemplate::parse(source, {{"bos_token", "<s>"}}));
//   INVAR_ASSIGN(auto rendered, chat->render(messages, {.add_generation_prompt = true}));
//
// The language is the part of Jinja that chat templates use, run as transformers runs it (trim_blocks, lstrip_blocks,
// loop controls, tojson, raise_exception, strftime_now, {% generation %}). A template that calls raise_exception fails
// with "template.raised" and its text. Anything else is refused by name, with its line.
// Thread rule: const once parsed; use from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/template/interpreter.h"
#include "core/text/template/syntax.h"
#include "core/text/template/value.h"

namespace invar {

struct ChatOptions {
  bool add_generation_prompt = false;
  chat::Value tools;      // a list of functions; undefined: none
  chat::Value documents;  // for templates that read them
  chat::Dict variables;   // further ones, such as enable_thinking
  int64_t unix_time = 0;  // what strftime_now tells, in UTC
};

class ChatTemplate {
 public:
  // tokens: bos_token, eos_token and so on, by name.
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source, chat::Dict tokens);

  // messages: a list of dictionaries with role and content.
  Result<chat::Rendered> render(const chat::Value& messages, const ChatOptions& options) const;
  // Whether the template marks what the model writes by {% generation %}.
  bool marks_generation() const { return marks_generation_; }

 private:
  ChatTemplate() = default;
  chat::Block block_;
  chat::Dict tokens_;
  bool marks_generation_ = false;
};

}  // namespace invar
