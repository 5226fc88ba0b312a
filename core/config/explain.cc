// The table as text for people and as JSON for tools.
#include "core/config/config.h"
#include "core/config/tree.h"

namespace invar::config {

namespace {

const char* type_word(const Field& field) {
  switch (field.kind) {
    case Kind::kBool: return "bool";
    case Kind::kInt32: return "int32";
    case Kind::kInt64: return "int64";
    case Kind::kUint64: return "uint64";
    case Kind::kDouble: return "double";
    case Kind::kString: return "string";
    case Kind::kEnum: return "enum";
    case Kind::kMap: return "map";
    case Kind::kMessage: break;
  }
  return "message";
}

// "int64, default 20, >= 0, <= 100, unit steps"
std::string summary(const Field& field) {
  std::string out = cat(field.repeated ? "list of " : "", type_word(field));
  if (field.default_text != nullptr) out += cat(", default ", field.default_text);
  if (field.required) out += ", required";
  if (field.has_above) out += cat(", > ", number_text(field.above));
  if (field.has_min) out += cat(", >= ", number_text(field.min));
  if (field.has_max) out += cat(", <= ", number_text(field.max));
  if (*field.unit != '\0') out += cat(", unit ", field.unit);
  return out;
}

std::string fields_text(const MessageType& type) {
  std::string out;
  for (const Field& field : type.fields) {
    out += cat("  ", field.name, ": ", summary(field), "\n");
    if (*field.doc != '\0') out += cat("      ", field.doc, "\n");
  }
  return out;
}

void describe_fields(const MessageType& type, std::string& out);

void describe_field(const Field& field, std::string& out) {
  out +=
      cat("{\"name\":", json_string(field.name), ",\"number\":", field.number, ",\"type\":\"", type_word(field), "\"");
  if (field.repeated) out += ",\"repeated\":true";
  if (field.default_text != nullptr) out += cat(",\"default\":", json_string(field.default_text));
  if (field.required) out += ",\"required\":true";
  if (field.presence) out += ",\"presence\":true";
  if (*field.unit != '\0') out += cat(",\"unit\":", json_string(field.unit));
  if (field.has_min) out += cat(",\"min\":", number_text(field.min));
  if (field.has_max) out += cat(",\"max\":", number_text(field.max));
  if (field.has_above) out += cat(",\"above\":", number_text(field.above));
  if (*field.doc != '\0') out += cat(",\"doc\":", json_string(field.doc));
  if (field.kind == Kind::kEnum) {
    out += ",\"values\":[";
    bool first = true;
    for (const EnumValue& value : field.enumeration->values) {
      if (value.number == 0) continue;
      out += cat(first ? "" : ",", "{\"name\":", json_string(value.name), ",\"doc\":", json_string(value.doc), "}");
      first = false;
    }
    out += "]";
  }
  if (field.kind == Kind::kMessage) {
    out += cat(",\"message\":", json_string(field.message->short_name()), ",\"fields\":");
    describe_fields(*field.message, out);
  }
  out += "}";
}

void describe_fields(const MessageType& type, std::string& out) {
  out += "[";
  for (const Field& field : type.fields) {
    if (&field != type.fields.data()) out += ",";
    describe_field(field, out);
  }
  out += "]";
}

}  // namespace

Result<std::string> explain(std::string_view path) {
  const std::string_view root = path.substr(0, path.find('.'));
  const MessageType* type = find_message(root);
  if (type == nullptr) {
    return Error(Code::kInvalidArgument, "config.unknown_config",
                 cat("\"", root, "\": no such config; known: ", config_words()));
  }
  const Field* field = nullptr;
  std::string_view rest = root.size() == path.size() ? std::string_view() : path.substr(root.size() + 1);
  std::string here(root);
  while (!rest.empty()) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    if (type == nullptr) {
      return Error(Code::kInvalidArgument, "config.unknown_field", cat(here, " has no fields below it"));
    }
    field = type->find(name);
    if (field == nullptr) {
      std::vector<std::string_view> names;
      for (const Field& each : type->fields) names.push_back(each.name);
      return Error(Code::kInvalidArgument, "config.unknown_field",
                   cat(here, ".", name, ": unknown field of ", type->short_name(), suggestion(name, names)));
    }
    here = join_key(here, name);
    type = field->message;
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  if (field == nullptr)
    return cat(here, ": ", type->short_name(), "\n", type->doc, *type->doc ? "\n" : "", fields_text(*type));
  std::string out = cat(here, ": ", summary(*field), "\n");
  if (*field->doc != '\0') out += cat(field->doc, "\n");
  if (field->kind == Kind::kEnum) {
    for (const EnumValue& value : field->enumeration->values) {
      if (value.number != 0) out += cat("  ", value.name, *value.doc ? ": " : "", value.doc, "\n");
    }
  }
  if (type != nullptr) out += fields_text(*type);
  return out;
}

std::string describe_json(const MessageType& type) {
  std::string out =
      cat("{\"name\":", json_string(type.short_name()), ",\"doc\":", json_string(type.doc), ",\"fields\":");
  describe_fields(type, out);
  return out + "}";
}

}  // namespace invar::config
