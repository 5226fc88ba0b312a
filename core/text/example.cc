#include "core/text/example.h"

#include <algorithm>
#include <initializer_list>

namespace invar {
namespace {

using chat::Dict;
using chat::List;
using chat::Value;

constexpr std::string_view kLayouts =
    "text, messages, prompt and completion, conversations, instruction and output, input_ids";

Status bad(std::string_view reason, std::string message) { return Error(Code::kDataLoss, reason, std::move(message)); }

const char* json_type(const Value& value) {
  return value.is_string() ? "string"
         : value.is_list() ? "array"
         : value.is_dict() ? "object"
         : value.is_bool() ? "boolean"
         : value.is_none() ? "null"
                           : "number";
}

Result<std::string> text_of(const Value& record, std::string_view key) {
  const Value value = record.find(key);
  if (value.is_undefined()) return bad("text.missing_key", cat("no key \"", key, "\""));
  if (!value.is_string()) {
    return bad("text.not_a_string", cat("\"", key, "\" is a ", json_type(value), ", expected a string"));
  }
  return value.string();
}

Status check_messages(const Value& messages, std::string_view key) {
  if (!messages.is_list() || messages.items().empty()) {
    return bad("text.bad_record", cat("\"", key, "\" is no list of messages"));
  }
  for (size_t i = 0; i < messages.items().size(); ++i) {
    const Value& message = messages.items()[i];
    if (!message.is_dict() || !message.find("role").is_string()) {
      return bad("text.bad_record", cat("\"", key, "\"[", i, "] is no object with a \"role\""));
    }
  }
  return {};
}

Result<Example> conversation(const Value& record, Value messages) {
  Example example;
  example.kind = ExampleKind::kMessages;
  example.messages = std::move(messages);
  example.tools = record.find("tools");
  if (example.tools.is_string()) {  // some sets hold the list as a text
    INVAR_ASSIGN(example.tools, chat::value_of_json(example.tools.string()));
  }
  if (example.tools.is_none()) example.tools = Value();
  const Value variables = record.find("chat_template_kwargs");
  if (variables.is_dict()) example.variables = variables.entries();
  return example;
}

Result<Example> messages_of(const Value& record) {
  const Value messages = record.find("messages");
  INVAR_TRY(check_messages(messages, "messages"));
  return conversation(record, messages);
}

Result<Example> prompt_completion(const Value& record) {
  const Value prompt = record.find("prompt"), completion = record.find("completion");
  if (prompt.is_list() && completion.is_list()) {
    INVAR_TRY(check_messages(prompt, "prompt"));
    INVAR_TRY(check_messages(completion, "completion"));
    List all = prompt.items();
    all.insert(all.end(), completion.items().begin(), completion.items().end());
    INVAR_ASSIGN(Example example, conversation(record, Value::list(std::move(all))));
    example.context_messages = prompt.items().size();
    return example;
  }
  Example example;
  example.kind = ExampleKind::kPromptCompletion;
  INVAR_ASSIGN(example.prompt, text_of(record, "prompt"));
  INVAR_ASSIGN(example.completion, text_of(record, "completion"));
  return example;
}

Result<Example> alpaca(const Value& record) {
  Example example;
  example.kind = ExampleKind::kPromptCompletion;
  INVAR_ASSIGN(const std::string instruction, text_of(record, "instruction"));
  INVAR_ASSIGN(example.completion, text_of(record, "output"));
  const Value input = record.find("input");
  const std::string more = input.is_string() ? input.string() : std::string();
  // For tokenizers with a chat template, a conversation; this text for the others.
  example.prompt =
      cat("### Instruction:\n", instruction, more.empty() ? "" : "\n\n### Input:\n", more, "\n\n### Response:\n");
  List messages;
  const auto add = [&](const char* role, std::string content) {
    Dict message;
    message.emplace_back("role", Value(role));
    message.emplace_back("content", Value(std::move(content)));
    messages.push_back(Value::dict(std::move(message)));
  };
  if (record.find("system").is_string() && !record.find("system").string().empty()) {
    add("system", record.find("system").string());
  }
  add("user", more.empty() ? instruction : cat(instruction, "\n\n", more));
  add("assistant", example.completion);
  example.messages = Value::list(std::move(messages));
  return example;
}

Result<Example> share_gpt(const Value& record) {
  const Value turns = record.find("conversations");
  if (!turns.is_list() || turns.items().empty()) return bad("text.bad_record", "\"conversations\" is no list of turns");
  List messages;
  if (record.find("system").is_string() && !record.find("system").string().empty()) {
    messages.push_back(Value::dict({{"role", Value("system")}, {"content", record.find("system")}}));
  }
  for (size_t i = 0; i < turns.items().size(); ++i) {
    const Value& turn = turns.items()[i];
    if (turn.is_dict() && turn.find("role").is_string()) {  // already named as messages are
      messages.push_back(turn);
      continue;
    }
    const Value from = turn.is_dict() ? turn.find("from") : Value();
    const Value value = turn.is_dict() ? turn.find("value") : Value();
    if (!from.is_string() || !value.is_string()) {
      return bad("text.bad_record", cat("\"conversations\"[", i, "] has no \"from\" and \"value\""));
    }
    const std::string& name = from.string();
    const char* role = name == "human" || name == "user"                                        ? "user"
                       : name == "gpt" || name == "assistant" || name == "model"                ? "assistant"
                       : name == "system"                                                       ? "system"
                       : name == "tool" || name == "observation" || name == "function_response" ? "tool"
                                                                                                : nullptr;
    if (role == nullptr) {
      return bad("text.bad_record", cat("\"conversations\"[", i, "] is from \"", name,
                                        "\"; known: human, user, gpt, assistant, model, system, tool"));
    }
    messages.push_back(Value::dict({{"role", Value(role)}, {"content", value}}));
  }
  return conversation(record, Value::list(std::move(messages)));
}

Result<std::vector<int64_t>> integers_of(const Value& list, std::string_view key) {
  if (!list.is_list())
    return bad("text.bad_record", cat("\"", key, "\" is a ", json_type(list), ", expected an array"));
  std::vector<int64_t> out;
  out.reserve(list.items().size());
  for (const Value& item : list.items()) {
    if (!item.is_integer() && !item.is_bool()) {
      return bad("text.bad_record", cat("\"", key, "\"[", out.size(), "] is no whole number"));
    }
    out.push_back(item.integer());
  }
  return out;
}

Result<Example> tokens(const Value& record) {
  Example example;
  example.kind = ExampleKind::kTokens;
  INVAR_ASSIGN(const auto ids, integers_of(record.find("input_ids"), "input_ids"));
  example.trained.assign(ids.size(), true);
  for (const int64_t id : ids) {
    if (id < 0 || id > INT32_MAX) {
      return bad("text.bad_record", cat("\"input_ids\"[", example.ids.size(), "] is ", id));
    }
    example.ids.push_back(static_cast<int32_t>(id));
  }
  // Each says which tokens count; a token counts when all of them agree.
  for (const char* key : {"labels", "completion_mask", "assistant_masks", "loss_mask", "attention_mask"}) {
    const Value list = record.find(key);
    if (list.is_undefined() || list.is_none()) continue;
    INVAR_ASSIGN(const auto marks, integers_of(list, key));
    if (marks.size() != ids.size()) {
      return bad("text.bad_record", cat("\"", key, "\" has ", marks.size(), " entries, \"input_ids\" ", ids.size()));
    }
    const bool labels = std::string_view(key) == "labels";
    for (size_t i = 0; i < marks.size(); ++i) {
      if (labels && marks[i] >= 0 && marks[i] != ids[i]) {
        return bad("text.bad_record", cat("\"labels\"[", i, "] is ", marks[i], ", neither the id ", ids[i],
                                          " nor negative: labels stand at their own token's place"));
      }
      if (labels ? marks[i] < 0 : marks[i] == 0) example.trained[i] = false;
    }
  }
  return example;
}

}  // namespace

const char* example_kind_name(ExampleKind kind) {
  constexpr const char* kNames[] = {"text", "prompt and completion", "messages", "tokens"};
  return kNames[static_cast<int>(kind)];
}

Result<Example> parse_example(std::string_view text, ExampleFormat format, std::string_view text_key) {
  auto parsed = chat::value_of_json(text);
  if (!parsed.ok()) {
    return bad("text.bad_json", parsed.status().message().find("at byte") != std::string::npos
                                    ? cat(parsed.status().message(), " of the line")
                                    : parsed.status().message());
  }
  const Value& record = parsed.value();
  if (!record.is_dict()) {
    return bad("text.bad_json", cat("a JSON ", json_type(record), "; every line must be an object"));
  }
  const auto has = [&](const char* key) { return !record.find(key).is_undefined(); };
  switch (format) {
    case ExampleFormat::kMessages: return messages_of(record);
    case ExampleFormat::kPromptCompletion: return prompt_completion(record);
    case ExampleFormat::kAlpaca: return alpaca(record);
    case ExampleFormat::kShareGpt: return share_gpt(record);
    case ExampleFormat::kTokens: return tokens(record);
    case ExampleFormat::kText: break;
    case ExampleFormat::kAuto:
      if (has("messages")) return messages_of(record);
      if (has("conversations")) return share_gpt(record);
      if (has("prompt") && has("completion")) return prompt_completion(record);
      if (has("input_ids")) return tokens(record);
      if (has("instruction") && has("output")) return alpaca(record);
      if (record.find(text_key).is_undefined()) {
        return bad("text.missing_key", cat("no key \"", text_key, "\" and no other layout that is known: ", kLayouts));
      }
      break;
  }
  Example example;
  INVAR_ASSIGN(example.text, text_of(record, text_key));
  return example;
}

}  // namespace invar
