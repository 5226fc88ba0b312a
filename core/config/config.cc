#include "core/config/config.h"

#include <google/protobuf/message_lite.h>
#include <google/protobuf/stubs/logging.h>

#include "core/config/tree.h"

namespace invar::config {

namespace {

// The lite runtime prints to standard error unless its handler is set. Done once while the library loads, before any
// thread can parse.
const bool kProtobufIsSilent = (google::protobuf::SetLogHandler(nullptr), true);

Result<Node> read(const MessageType& type, Form form, std::string_view input) {
  switch (form) {
    case Form::kJson: return from_json(type, input);
    case Form::kText: return from_text(type, input);
    case Form::kWire: break;
  }
  return from_wire(type, input);
}

}  // namespace

Result<std::string> convert(const MessageType& type, Form from, std::string_view input, Form to, bool pretty) {
  INVAR_ASSIGN(const Node node, read(type, from, input));
  switch (to) {
    case Form::kJson: return to_json(node, pretty);
    case Form::kText: return to_text(node);
    case Form::kWire: break;
  }
  return to_wire(node);
}

Result<std::string> wire_with_override(const MessageType& type, std::string_view bytes, std::string_view assignment) {
  INVAR_ASSIGN(Node node, from_wire(type, bytes));
  INVAR_TRY(apply_override(node, assignment));
  return to_wire(node);
}

Result<std::string> wire_with_defaults(const MessageType& type, std::string_view bytes) {
  INVAR_ASSIGN(Node node, from_wire(type, bytes));
  fill_defaults(node);
  return to_wire(node);
}

Status check_wire(const MessageType& type, std::string_view bytes) {
  INVAR_ASSIGN(const Node node, from_wire(type, bytes));
  return check(node);
}

std::string to_json(const google::protobuf::MessageLite& message, bool pretty) {
  const auto text = convert(detail::type_of(message), Form::kWire, detail::serialize(message), Form::kJson, pretty);
  return text.ok() ? text.value() : "{}";
}

std::string to_text(const google::protobuf::MessageLite& message) {
  const auto text = convert(detail::type_of(message), Form::kWire, detail::serialize(message), Form::kText);
  return text.ok() ? text.value() : std::string();
}

Status check(const google::protobuf::MessageLite& message) {
  return check_wire(detail::type_of(message), detail::serialize(message));
}

namespace detail {

const MessageType& type_of(const google::protobuf::MessageLite& message) {
  const MessageType* type = find_message(message.GetTypeName());
  assert(type != nullptr && kProtobufIsSilent);  // every message of invar.v1 is in the table
  return *type;
}

std::string serialize(const google::protobuf::MessageLite& message) { return message.SerializePartialAsString(); }

Status parse(std::string_view bytes, google::protobuf::MessageLite* message) {
  INVAR_ASSIGN(const Node node, from_wire(type_of(*message), bytes));  // names what is wrong; the runtime cannot
  if (!message->ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Error(Code::kInvalidArgument, "config.corrupt", cat(node.type->short_name(), ": damaged protobuf bytes"));
  }
  return {};
}

}  // namespace detail

}  // namespace invar::config
