#include "core/text/template/chat_template.h"

#include <array>
#include <ctime>

namespace invar {
namespace {

using chat::Arguments;
using chat::Dict;
using chat::List;
using chat::Value;

constexpr int64_t kMaxRange = 1'000'000;

Result<Value> raise_exception(const Arguments& arguments) {
  return Error(Code::kInvalidArgument, "template.raised", arguments.get(0, "message").text());
}

Result<Value> range(const Arguments& arguments) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3) return chat::template_error("range: takes one to three numbers");
  for (size_t i = 0; i < count; ++i) {
    if (!arguments.positional[i].is_integer()) return chat::template_error("range: takes whole numbers");
    bounds[count == 1 ? 1 : i] = arguments.positional[i].integer();
  }
  const int64_t step = bounds[2];
  if (step == 0) return chat::template_error("range: step 0");
  List items;
  for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      return Error(Code::kResourceExhausted, "template.limit", cat("range: more than ", kMaxRange, " numbers"));
    }
    items.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

Result<Value> make_namespace(const Arguments& arguments) {
  Dict fields;
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) fields = arguments.positional[0].entries();
  for (const auto& entry : arguments.named) fields.push_back(entry);
  return Value::name_space(std::move(fields));
}

Result<Value> make_dict(const Arguments& arguments) {
  Dict entries;
  if (!arguments.positional.empty() && arguments.positional[0].is_dict()) entries = arguments.positional[0].entries();
  for (const auto& entry : arguments.named) entries.push_back(entry);
  return Value::dict(std::move(entries));
}

chat::Function time_function(int64_t unix_time) {
  return [unix_time](const Arguments& arguments) -> Result<Value> {
    const auto seconds = static_cast<std::time_t>(unix_time);
    std::tm parts{};
    gmtime_r(&seconds, &parts);
    std::array<char, 256> buffer;
    const std::string format = arguments.get(0, "format").text();
    const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts);
    return Value(std::string(buffer.data(), size));
  };
}

bool has_generation(const chat::Block& block) {
  for (const chat::Statement& statement : block) {
    if (statement.kind == chat::StatementKind::kGeneration) return true;
    if (has_generation(statement.body) || has_generation(statement.otherwise)) return true;
  }
  return false;
}

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source, chat::Dict tokens) {
  INVAR_ASSIGN(chat::Block block, chat::parse_template(source));
  std::shared_ptr<ChatTemplate> made(new ChatTemplate);
  made->block_ = std::move(block);
  made->tokens_ = std::move(tokens);
  made->marks_generation_ = has_generation(made->block_);
  return std::shared_ptr<const ChatTemplate>(std::move(made));
}

Result<chat::Rendered> ChatTemplate::render(const chat::Value& messages, const ChatOptions& options) const {
  Dict globals = options.variables;
  const auto set = [&](const char* name, Value value) { globals.emplace_back(name, std::move(value)); };
  set("messages", messages);
  set("tools", options.tools.is_undefined() ? Value(Value::None()) : options.tools);
  set("documents", options.documents.is_undefined() ? Value(Value::None()) : options.documents);
  set("add_generation_prompt", Value(options.add_generation_prompt));
  for (const auto& entry : tokens_) globals.push_back(entry);
  set("raise_exception", Value::function(raise_exception));
  set("range", Value::function(range));
  set("namespace", Value::function(make_namespace));
  set("dict", Value::function(make_dict));
  set("strftime_now", Value::function(time_function(options.unix_time)));
  auto rendered = chat::run_template(block_, std::move(globals));
  if (!rendered.ok()) return rendered.status().with_context("chat template");
  return rendered;
}

}  // namespace invar
