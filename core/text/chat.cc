#include "core/text/chat.h"

namespace invar {
namespace {

using chat::Value;

// "chat_template" of tokenizer_config.json: a text, or a list of named ones of which "default" counts.
std::string template_in_config(const Value& config) {
  const Value found = config.find("chat_template");
  if (found.is_string()) return found.string();
  if (!found.is_list()) return {};
  for (const Value& named : found.items()) {
    if (!named.is_dict() || named.find("name").text() != "default") continue;
    if (named.find("template").is_string()) return named.find("template").string();
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> chat_template_from(std::string_view source, const Tokenizer& tokenizer) {
  chat::Dict tokens;
  const auto add = [&](const char* name, int32_t id) {
    if (id >= 0) tokens.emplace_back(name, Value(tokenizer.token_of(id)));
  };
  add("bos_token", tokenizer.bos_id());
  add("eos_token", tokenizer.eos_id());
  add("pad_token", tokenizer.pad_id());
  return ChatTemplate::parse(source, std::move(tokens));
}

Result<std::shared_ptr<const ChatTemplate>> chat_template_of(const Tokenizer& tokenizer) {
  std::string source;
  for (const TokenizerFile& file : tokenizer.files()) {
    if (file.name == "chat_template.jinja") source = file.text;
    if (file.name != "tokenizer_config.json" || !source.empty()) continue;
    const auto config = chat::value_of_json(file.text);
    if (config.ok() && config.value().is_dict()) source = template_in_config(config.value());
  }
  if (source.empty()) return std::shared_ptr<const ChatTemplate>();
  return chat_template_from(source, tokenizer);
}

}  // namespace invar
