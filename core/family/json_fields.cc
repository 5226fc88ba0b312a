#include "core/family/json_fields.h"

#include <cmath>

namespace invar {
namespace {

using nlohmann::json;

std::string shortened(const json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

const json* Fields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Status Fields::wrong_type(const char* key, const json& value, std::string_view expectation) const {
  return Error(Code::kInvalidArgument, "config.wrong_type",
               cat(path_, ": \"", key, "\" is ", shortened(value), ": expected ", expectation));
}

Status Fields::unsupported(const char* key, const json& value, std::string_view expectation) const {
  return Error(Code::kUnimplemented, "config.unsupported",
               cat(path_, ": \"", key, "\" is ", shortened(value), ": not supported, expected ", expectation));
}

Result<int64_t> Fields::positive_value(const char* key, const json& value) const {
  constexpr int64_t kLargest = int64_t{1} << 31;
  if (!value.is_number_integer()) return wrong_type(key, value, "a whole number");
  // A number above int64's range is stored unsigned and would wrap.
  const bool wraps = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kLargest);
  if (wraps || value.get<int64_t>() < 1 || value.get<int64_t>() > kLargest) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(path_, ": \"", key, "\" is ", shortened(value), ": expected 1 to ", kLargest));
  }
  return value.get<int64_t>();
}

Result<int64_t> Fields::positive(const char* key) const {
  const json* value = find(key);
  if (value == nullptr) {
    return Error(Code::kInvalidArgument, "config.missing_key",
                 cat(path_, ": \"", key, "\" is missing: expected a whole number"));
  }
  return positive_value(key, *value);
}

Result<int64_t> Fields::positive_or(const char* key, int64_t fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  return positive_value(key, *value);
}

Result<double> Fields::positive_number_or(const char* key, double fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_number()) return wrong_type(key, *value, "a number");
  const double number = value->get<double>();
  if (!(number > 0) || !std::isfinite(number)) {
    return Error(Code::kInvalidArgument, "config.out_of_range",
                 cat(path_, ": \"", key, "\" is ", shortened(*value), ": expected a number above 0"));
  }
  return number;
}

Result<bool> Fields::boolean_or(const char* key, bool fallback) const {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong_type(key, *value, "true or false");
  return value->get<bool>();
}

Result<std::string> Fields::string_or(const char* key, std::string_view fallback) const {
  const json* value = find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return wrong_type(key, *value, "a string");
  return value->get<std::string>();
}

}  // namespace invar
