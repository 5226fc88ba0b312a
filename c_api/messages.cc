// Configs and reports between their forms.
#include "c_api/internal/handles.h"

namespace {

using invar::Code;
using invar::Error;
using invar::Result;
using invar::abi::entry;
using invar::abi::Outcome;
using invar::config::Form;
using invar::config::MessageType;

Result<const MessageType*> type_named(std::string_view name) {
  const MessageType* type = invar::config::find_message(name);
  if (type != nullptr) return type;
  std::vector<std::string_view> names;
  for (const MessageType& each : invar::config::message_types()) names.push_back(each.short_name());
  const auto best = invar::config::nearest(name, names);
  return Error(Code::kInvalidArgument, "message.unknown_type",
               invar::cat("\"", name.substr(0, 100), "\": no such message",
                          best.empty() ? invar::cat("; configs: ", invar::config::config_words())
                                       : invar::cat("; did you mean \"", best, "\"?")));
}

// All of them: one message in, one result out. work(type, input) -> Result<std::string>.
template <typename Work>
invar_status* transform(const char* name, invar_runtime* runtime, const char* type, size_t type_size,
                        const void* message, size_t message_size, invar_bytes** result, Work&& work) noexcept {
  return entry(name, [&](const char* function) -> Outcome {
    if (result != nullptr) *result = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(type);
    INVAR_REQUIRE(result);
    INVAR_TEXT(input, static_cast<const char*>(message), message_size);
    INVAR_ASSIGN(const MessageType* found, type_named(std::string_view(type, type_size)));
    INVAR_ASSIGN(std::string output, work(*found, input));
    INVAR_ASSIGN(*result, invar::abi::make_bytes(std::move(output)));
    return {};
  });
}

}  // namespace

invar_status* invar_message_from_json(invar_runtime* runtime, const char* type, size_t type_size, const char* text,
                                      size_t text_size, invar_bytes** message) noexcept {
  return transform(__func__, runtime, type, type_size, text, text_size, message,
                   [](const MessageType& of, std::string_view input) {
                     return invar::config::convert(of, Form::kJson, input, Form::kWire);
                   });
}

invar_status* invar_message_from_text(invar_runtime* runtime, const char* type, size_t type_size, const char* text,
                                      size_t text_size, invar_bytes** message) noexcept {
  return transform(__func__, runtime, type, type_size, text, text_size, message,
                   [](const MessageType& of, std::string_view input) {
                     return invar::config::convert(of, Form::kText, input, Form::kWire);
                   });
}

invar_status* invar_message_to_json(invar_runtime* runtime, const char* type, size_t type_size, const void* message,
                                    size_t message_size, bool pretty, invar_bytes** text) noexcept {
  return transform(__func__, runtime, type, type_size, message, message_size, text,
                   [&](const MessageType& of, std::string_view input) {
                     return invar::config::convert(of, Form::kWire, input, Form::kJson, pretty);
                   });
}

invar_status* invar_message_to_text(invar_runtime* runtime, const char* type, size_t type_size, const void* message,
                                    size_t message_size, invar_bytes** text) noexcept {
  return transform(__func__, runtime, type, type_size, message, message_size, text,
                   [](const MessageType& of, std::string_view input) {
                     return invar::config::convert(of, Form::kWire, input, Form::kText);
                   });
}

invar_status* invar_message_set(invar_runtime* runtime, const char* type, size_t type_size, const void* message,
                                size_t message_size, const char* assignment, size_t assignment_size,
                                invar_bytes** result) noexcept {
  return transform(__func__, runtime, type, type_size, message, message_size, result,
                   [&](const MessageType& of, std::string_view input) -> Result<std::string> {
                     if (assignment == nullptr) return invar::abi::null_argument("invar_message_set", "assignment");
                     return invar::config::wire_with_override(of, input, std::string_view(assignment, assignment_size));
                   });
}

invar_status* invar_message_with_defaults(invar_runtime* runtime, const char* type, size_t type_size,
                                          const void* message, size_t message_size, invar_bytes** result) noexcept {
  return transform(__func__, runtime, type, type_size, message, message_size, result,
                   invar::config::wire_with_defaults);
}

invar_status* invar_message_check(invar_runtime* runtime, const char* type, size_t type_size, const void* message,
                                  size_t message_size) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(type);
    INVAR_TEXT(input, static_cast<const char*>(message), message_size);
    INVAR_ASSIGN(const MessageType* found, type_named(std::string_view(type, type_size)));
    return invar::config::check_wire(*found, input);
  });
}

invar_status* invar_message_explain(invar_runtime* runtime, const char* path, size_t path_size,
                                    invar_bytes** text) noexcept {
  return entry(__func__, [&](const char* function) -> Outcome {
    if (text != nullptr) *text = nullptr;
    INVAR_HANDLE(runtime);
    INVAR_REQUIRE(path);
    INVAR_REQUIRE(text);
    INVAR_ASSIGN(std::string output, invar::config::explain(std::string_view(path, path_size)));
    INVAR_ASSIGN(*text, invar::abi::make_bytes(std::move(output)));
    return {};
  });
}

invar_status* invar_message_describe(invar_runtime* runtime, const char* type, size_t type_size,
                                     invar_bytes** text) noexcept {
  return transform(
      __func__, runtime, type, type_size, nullptr, 0, text,
      [](const MessageType& of, std::string_view) -> Result<std::string> { return invar::config::describe_json(of); });
}
