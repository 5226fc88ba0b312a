// Configs and reports in their three forms: message, JSON and protobuf text. The lite runtime has no reflection; the
// generated field table takes its place.
//
//   INVAR_ASSIGN(auto given, config::from_json<invar::v1::TrainConfig>(text));
//   INVAR_TRY(config::set(given, "optimizer.lr=3e-4"));
//   INVAR_TRY(config::check(given));                      // ranges, enums, required fields
//   const auto full = config::with_defaults(given);       // every scalar set
//   std::string json = config::to_json(report);
//
// Errors carry the field's path, the value and the expectation: "config.unknown_field" (with the nearest name),
// "config.wrong_type", "config.unknown_value", "config.out_of_range", "config.missing_field", "config.syntax".
// Linking this component silences protobuf's log handler, which would print otherwise.
// Thread rule: free functions over values.
#pragma once

#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/config/table.h"

namespace google::protobuf {
class MessageLite;
}

namespace invar::config {

enum class Form { kWire, kJson, kText };

// Between the forms, by message type. Reading checks names and types; check() checks values.
Result<std::string> convert(const MessageType& type, Form from, std::string_view input, Form to, bool pretty = true);
Result<std::string> wire_with_override(const MessageType& type, std::string_view bytes, std::string_view assignment);
Result<std::string> wire_with_defaults(const MessageType& type, std::string_view bytes);
Status check_wire(const MessageType& type, std::string_view bytes);

// About one field or message, for people; `path` begins with a config word: "train", "train.optimizer.lr".
Result<std::string> explain(std::string_view path);
// The message and everything below as JSON: name, type, default, unit, min, max, above, values, doc, fields.
std::string describe_json(const MessageType& type);

namespace detail {
const MessageType& type_of(const google::protobuf::MessageLite& message);
std::string serialize(const google::protobuf::MessageLite& message);
Status parse(std::string_view bytes, google::protobuf::MessageLite* message);
}  // namespace detail

// A message from its binary form; unknown fields are refused.
template <typename Message>
Result<Message> parse(std::string_view bytes) {
  Message message;
  INVAR_TRY(detail::parse(bytes, &message));
  return message;
}

template <typename Message>
Result<Message> from_json(std::string_view text) {
  Message message;
  INVAR_ASSIGN(const std::string bytes, convert(detail::type_of(message), Form::kJson, text, Form::kWire));
  INVAR_TRY(detail::parse(bytes, &message));
  return message;
}

template <typename Message>
Result<Message> from_text(std::string_view text) {
  Message message;
  INVAR_ASSIGN(const std::string bytes, convert(detail::type_of(message), Form::kText, text, Form::kWire));
  INVAR_TRY(detail::parse(bytes, &message));
  return message;
}

// Total for messages made by code: strings that are not UTF-8 are an error of the caller and give "{}".
std::string to_json(const google::protobuf::MessageLite& message, bool pretty = true);
std::string to_text(const google::protobuf::MessageLite& message);

template <typename Message>
Status set(Message& message, std::string_view assignment) {
  INVAR_ASSIGN(const std::string bytes,
               wire_with_override(detail::type_of(message), detail::serialize(message), assignment));
  message.Clear();
  return detail::parse(bytes, &message);
}

// Every absent scalar gets its default, in messages that stand for themselves too.
template <typename Message>
Message with_defaults(const Message& message) {
  const auto bytes = wire_with_defaults(detail::type_of(message), detail::serialize(message));
  Message out;
  if (bytes.ok()) (void)detail::parse(bytes.value(), &out).ok();
  return out;
}

template <typename Message>
Message defaults() {
  return with_defaults(Message());
}

Status check(const google::protobuf::MessageLite& message);

}  // namespace invar::config
