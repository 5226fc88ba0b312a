#include "tools/cli/client.h"

#include <nlohmann/json.hpp>

namespace cli {

namespace {

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

int exit_code_of(invar_code code, const std::string& reason, const std::string& message) {
  if (code == INVAR_CANCELLED) return kInterrupted;
  // "config." is also said of a model's own config.json, which is input.
  if (starts_with(reason, "config.")) return message.find(".json") == std::string::npos ? kUsage : kBadInput;
  if (code == INVAR_INVALID_ARGUMENT && starts_with(reason, "convert.")) return kUsage;
  if (starts_with(reason, "argument.") || starts_with(reason, "message.") || reason == "device.unknown" ||
      reason == "unimplemented") {
    return kUsage;
  }
  if (starts_with(reason, "file.") || starts_with(reason, "output.") || starts_with(reason, "memory.")) return kIo;
  switch (code) {
    case INVAR_NOT_FOUND:
    case INVAR_ALREADY_EXISTS:
    case INVAR_PERMISSION_DENIED:
    case INVAR_RESOURCE_EXHAUSTED:
    case INVAR_UNAVAILABLE:
    case INVAR_DEADLINE_EXCEEDED: return kIo;
    case INVAR_UNKNOWN:
    case INVAR_INTERNAL:
    case INVAR_ABORTED: return kInternal;
    default: return kBadInput;
  }
}

void check_as(invar_status* status, bool usage) {
  if (status == nullptr) return;
  const std::string message = invar_status_message(status, nullptr), reason = invar_status_reason(status, nullptr);
  const int code = usage ? static_cast<int>(kUsage) : exit_code_of(invar_status_code(status), reason, message);
  invar_status_release(status);
  throw Failure(code, message + " (" + reason + ")");
}

}  // namespace

void check(invar_status* status) { check_as(status, false); }
void check_usage(invar_status* status) { check_as(status, true); }

std::string take(invar_bytes* bytes) {
  const Owned<invar_bytes> owner(bytes);
  return std::string(reinterpret_cast<const char*>(invar_bytes_data(bytes)), invar_bytes_size(bytes));
}

Message Message::from_json(invar_runtime* runtime, const std::string& type, const std::string& text) {
  invar_bytes* bytes = nullptr;
  check_usage(invar_message_from_json(runtime, type.data(), type.size(), text.data(), text.size(), &bytes));
  return Message(runtime, type, take(bytes));
}

Message Message::from_text(invar_runtime* runtime, const std::string& type, const std::string& text) {
  invar_bytes* bytes = nullptr;
  check_usage(invar_message_from_text(runtime, type.data(), type.size(), text.data(), text.size(), &bytes));
  return Message(runtime, type, take(bytes));
}

void Message::set(const std::string& assignment) {
  invar_bytes* bytes = nullptr;
  check_usage(invar_message_set(runtime_, type_.data(), type_.size(), bytes_.data(), bytes_.size(), assignment.data(),
                                assignment.size(), &bytes));
  bytes_ = take(bytes);
}

void Message::set_list(const std::string& key, const std::vector<std::string>& values) {
  set(key, nlohmann::json(values).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

void Message::check() const {
  check_usage(invar_message_check(runtime_, type_.data(), type_.size(), bytes_.data(), bytes_.size()));
}

std::string Message::json(bool pretty) const {
  invar_bytes* bytes = nullptr;
  cli::check(invar_message_to_json(runtime_, type_.data(), type_.size(), bytes_.data(), bytes_.size(), pretty, &bytes));
  return take(bytes);
}

std::string Message::text() const {
  invar_bytes* bytes = nullptr;
  cli::check(invar_message_to_text(runtime_, type_.data(), type_.size(), bytes_.data(), bytes_.size(), &bytes));
  return take(bytes);
}

Message Message::with_defaults() const {
  invar_bytes* bytes = nullptr;
  check_usage(invar_message_with_defaults(runtime_, type_.data(), type_.size(), bytes_.data(), bytes_.size(), &bytes));
  return Message(runtime_, type_, take(bytes));
}

}  // namespace cli
