#include "core/text/pipeline/json_stage.h"

namespace invar {
namespace {

const Json* field(const Json& json, std::string_view key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(std::string(key));
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

Status wrong_type(const Json& json, std::string_view key, std::string_view expected) {
  return bad_stage(stage_type(json), cat("\"", key, "\" is not ", expected));
}

}  // namespace

Status bad_stage(std::string_view stage, std::string_view what) {
  return Error(Code::kDataLoss, "tokenizer.bad_file", cat(stage, ": ", what));
}

Status unsupported_stage(std::string_view what, std::string_view kind, std::string_view supported) {
  return Error(Code::kUnimplemented, "tokenizer.unsupported",
               cat(what, " \"", kind, "\" is not supported; supported: ", supported));
}

std::string stage_type(const Json& json) {
  const Json* type = field(json, "type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
}

Result<std::string> text_field(const Json& json, std::string_view key, std::string_view missing) {
  const Json* value = field(json, key);
  if (value == nullptr) return std::string(missing);
  if (!value->is_string()) return wrong_type(json, key, "a string");
  return value->get<std::string>();
}

Result<bool> flag_field(const Json& json, std::string_view key, bool missing) {
  const Json* value = field(json, key);
  if (value == nullptr) return missing;
  if (!value->is_boolean()) return wrong_type(json, key, "true or false");
  return value->get<bool>();
}

Result<int64_t> number_field(const Json& json, std::string_view key, int64_t missing) {
  const Json* value = field(json, key);
  if (value == nullptr) return missing;
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    return wrong_type(json, key, "a whole number");
  }
  return value->get<int64_t>();
}

Result<Regex> pattern_field(const Json& json) {
  const Json* pattern = field(json, "pattern");
  if (pattern == nullptr || !pattern->is_object()) return wrong_type(json, "pattern", "a String or a Regex");
  if (const Json* text = field(*pattern, "String"); text != nullptr && text->is_string()) {
    return Regex::compile(escape_regex(text->get<std::string>()));
  }
  if (const Json* regex = field(*pattern, "Regex"); regex != nullptr && regex->is_string()) {
    return Regex::compile(regex->get<std::string>());
  }
  return wrong_type(json, "pattern", "a String or a Regex");
}

}  // namespace invar
