// Typed reads from one JSON object, with errors that name file, key, value and expectation.
//
//   Fields fields(object, path);
//   INVAR_ASSIGN(int64_t hidden, fields.positive("hidden_size"));
//
// A key that is null counts as absent. Thread rule: a view; the object must outlive it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/status.h"

namespace invar {

class Fields {
 public:
  Fields(const nlohmann::json& object, std::string_view path) : object_(object), path_(path) {}

  // The value, or null when absent.
  const nlohmann::json* find(const char* key) const;
  Result<int64_t> positive(const char* key) const;  // required
  Result<int64_t> positive_or(const char* key, int64_t fallback) const;
  Result<double> positive_number_or(const char* key, double fallback) const;
  Result<bool> boolean_or(const char* key, bool fallback) const;
  Result<std::string> string_or(const char* key, std::string_view fallback) const;

  // `value` shortened for messages.
  Status wrong_type(const char* key, const nlohmann::json& value, std::string_view expectation) const;
  Status unsupported(const char* key, const nlohmann::json& value, std::string_view expectation) const;

 private:
  Result<int64_t> positive_value(const char* key, const nlohmann::json& value) const;

  const nlohmann::json& object_;
  std::string path_;
};

}  // namespace invar
