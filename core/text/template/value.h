// Values of a chat template: what JSON has, and what a template makes of it. Text is UTF-8, counted in characters.
//
// Lists, dictionaries and namespaces are shared by reference, as in Python; templates cannot change the first two.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status.h"

namespace invar::chat {

class Value;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of insertion

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  Dict named;
  // The argument at `place` or by `name`; undefined when it is not given.
  Value get(size_t place, std::string_view name) const;
  bool has(size_t place, std::string_view name) const;
};

using Function = std::function<Result<Value>(const Arguments&)>;

class Value {
 public:
  struct Undefined {};
  struct None {};

  Value() : data_(Undefined()) {}
  Value(None) : data_(None()) {}                           // NOLINT: implicit by design, here and below
  Value(bool value) : data_(value) {}                      // NOLINT
  Value(int64_t value) : data_(value) {}                   // NOLINT
  Value(double value) : data_(value) {}                    // NOLINT
  Value(std::string value) : data_(std::move(value)) {}    // NOLINT
  Value(const char* value) : data_(std::string(value)) {}  // NOLINT
  static Value list(List items) { return Value(Data(std::make_shared<List>(std::move(items)))); }
  static Value dict(Dict items) { return Value(Data(std::make_shared<Dict>(std::move(items)))); }
  static Value name_space(Dict items);
  static Value function(Function function) { return Value(Data(std::make_shared<Function>(std::move(function)))); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_integer() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<List>>(data_); }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<std::shared_ptr<Namespace>>(data_); }
  bool is_function() const { return std::holds_alternative<std::shared_ptr<Function>>(data_); }

  const std::string& string() const { return std::get<std::string>(data_); }
  const List& items() const { return *std::get<std::shared_ptr<List>>(data_); }
  const Dict& entries() const;  // of a dictionary or a namespace
  const Function& callable() const { return *std::get<std::shared_ptr<Function>>(data_); }
  // Integers and booleans; 0 for anything else.
  int64_t integer() const;
  double number() const;

  // The entry of a dictionary or namespace; undefined where there is none.
  Value find(std::string_view key) const;
  // Sets a field of a namespace.
  void assign(const std::string& key, Value value) const;

  bool truthy() const;
  const char* type_name() const;
  // As Python's str() and repr() write it; undefined is empty.
  std::string text() const;
  std::string repr() const;

  bool equals(const Value& other) const;
  // -1, 0, 1; an error for kinds that have no order.
  Result<int> compare(const Value& other) const;

 private:
  struct Namespace {
    Dict fields;
  };
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::string, std::shared_ptr<List>,
                            std::shared_ptr<Dict>, std::shared_ptr<Namespace>, std::shared_ptr<Function>>;
  explicit Value(Data data) : data_(std::move(data)) {}
  void write(std::string* out, bool quoted, int depth) const;

  Data data_;
};

// "template.error": what a template does wrong while it runs.
Status template_error(std::string message);

// Python's text of a float.
std::string float_text(double value);

// Characters of valid UTF-8, each a string.
std::vector<std::string_view> characters_of(std::string_view text);

// From a JSON text, in its order of keys ("template.bad_json"), and back as Python's json.dumps writes it without
// escaping non-ASCII characters. indent: -1 for one line.
Result<Value> value_of_json(std::string_view text);
std::string json_of(const Value& value, int indent);
struct JsonStyle {
  int indent = -1;
  std::string item_separator, key_separator;  // empty: the usual ones
  bool ensure_ascii = false;
  bool sort_keys = false;
};
std::string json_of(const Value& value, const JsonStyle& style);

}  // namespace invar::chat
