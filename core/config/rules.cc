// Overrides, defaults and checks over the tree.
#include <cmath>

#include "core/config/tree.h"

namespace invar::config {

namespace {

Status unknown(const MessageType& type, std::string_view path, std::string_view name) {
  std::vector<std::string_view> names;
  for (const Field& field : type.fields) names.push_back(field.name);
  return Error(Code::kInvalidArgument, "config.unknown_field",
               cat(join_key(path, name), ": unknown field of ", type.short_name(), suggestion(name, names)));
}

std::string parent_key(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string() : std::string(path.substr(0, dot));
}

std::string bounds_of(const Field& field) {
  std::string out;
  if (field.has_above) out = cat("> ", number_text(field.above));
  if (field.has_min) out = cat(">= ", number_text(field.min));
  if (field.has_max) out += cat(out.empty() ? "" : " and ", "<= ", number_text(field.max));
  return out;
}

Status check_scalar(const Field& field, const Value& value, const std::string& path) {
  if (field.kind == Kind::kEnum) {
    for (const EnumValue& each : field.enumeration->values) {
      if (each.number == value.as_int() && each.number != 0) return {};
    }
    return Error(Code::kInvalidArgument, "config.unknown_value",
                 cat(path, ": ", value.as_int(), " is not ", expectation(field, true)));
  }
  if (field.kind == Kind::kString || field.kind == Kind::kBool) return {};
  const double number = field.kind == Kind::kDouble   ? value.as_double()
                        : field.kind == Kind::kUint64 ? static_cast<double>(value.bits)
                                                      : static_cast<double>(value.as_int());
  const bool limited = field.has_min || field.has_max || field.has_above;
  const bool inside = !(field.has_min && !(number >= field.min)) && !(field.has_max && !(number <= field.max)) &&
                      !(field.has_above && !(number > field.above)) && !(limited && !std::isfinite(number));
  if (inside) return {};
  return Error(
      Code::kInvalidArgument, "config.out_of_range",
      cat(path, ": ", scalar_text(field, value), " is not ", std::isinf(number) ? "finite" : bounds_of(field)));
}

}  // namespace

Status apply_override(Node& root, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return Error(Code::kInvalidArgument, "config.syntax",
                 cat("\"", assignment, "\": expected key=value, such as optimizer.lr=3e-4"));
  }
  std::string_view key = assignment.substr(0, equals), text = assignment.substr(equals + 1);
  const bool append = key.ends_with('+');
  if (append) key.remove_suffix(1);
  Node* node = &root;
  std::string path;
  while (true) {
    const size_t dot = key.find('.');
    const std::string_view name = key.substr(0, dot);
    const Field* field = node->type->find(name);
    if (field == nullptr) return unknown(*node->type, path, name);
    path = join_key(path, name);
    if (dot == std::string_view::npos) {
      auto& values = node->of(*field);
      if (text == "null") {
        values.clear();
        return {};
      }
      const bool is_json = (field->repeated && text.starts_with('[')) ||
                           ((field->kind == Kind::kMessage || field->kind == Kind::kMap) && text.starts_with('{'));
      if (is_json) return merge_json(*node, parent_key(path), cat("{\"", name, "\":", text, "}"));
      INVAR_ASSIGN(auto value, parse_scalar(*field, text, path));
      if (!append || !field->repeated) values.clear();
      values.push_back(std::move(value));
      return {};
    }
    key.remove_prefix(dot + 1);
    if (field->kind == Kind::kMap) {  // the rest is the map's key
      if (!valid_utf8(key) || !valid_utf8(text)) {
        return Error(Code::kInvalidArgument, "config.not_utf8", cat(path, ": not UTF-8"));
      }
      auto& values = node->of(*field);
      std::erase_if(values, [&](const Value& other) { return other.key == key; });
      Value value;
      value.key = key;
      value.text = text;
      values.push_back(std::move(value));
      return {};
    }
    if (field->kind != Kind::kMessage || field->repeated) {
      return Error(Code::kInvalidArgument, "config.unknown_field",
                   cat(path, ".", key, ": ", path, " is ", expectation(*field)));
    }
    node = &node->child(*field);
  }
}

void fill_defaults(Node& node) {
  for (const Field& field : node.type->fields) {
    auto& values = node.of(field);
    if (field.kind == Kind::kMessage) {
      if (values.empty() && !field.repeated && !field.presence) node.child(field);
      for (Value& value : values) fill_defaults(*value.node);
    } else if (values.empty() && !field.repeated && field.default_text != nullptr) {
      values.push_back(default_of(field));
    }
  }
}

Status check(const Node& node, const std::string& path) {
  for (const Field& field : node.type->fields) {
    const auto& values = node.of(field);
    const std::string here = join_key(path, field.name);
    if (field.required && (values.empty() || (field.kind == Kind::kString && values.front().text.empty()))) {
      return Error(Code::kInvalidArgument, "config.missing_field", cat(here, ": must be given: ", expectation(field)));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string place = field.repeated ? cat(here, "[", i, "]") : here;
      if (field.kind == Kind::kMessage) {
        INVAR_TRY(check(*values[i].node, place));
      } else if (field.kind != Kind::kMap) {
        INVAR_TRY(check_scalar(field, values[i], place));
      }
    }
  }
  return {};
}

}  // namespace invar::config
