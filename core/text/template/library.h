// Filters, tests, methods and functions of chat templates: one table each.
// Thread rule: pure functions over their arguments.
#pragma once

#include <string_view>

#include "core/base/status.h"
#include "core/text/template/value.h"

namespace invar::chat {

// What a filter gets beside its arguments: calling back into filters and tests by name, for map and select.
struct Library {
  using Filter = Result<Value> (*)(const Value& input, const Arguments& arguments);
  using Test = Result<bool> (*)(const Value& input, const Arguments& arguments);
  using Method = Result<Value> (*)(const Value& self, const Arguments& arguments);
};

// "template.unsupported" names what is not there and what is.
Result<Value> apply_filter(std::string_view name, const Value& input, const Arguments& arguments);
Result<bool> apply_test(std::string_view name, const Value& input, const Arguments& arguments);
// The method `name` of a string, list or dictionary, bound to it; undefined where there is none.
Value bound_method(const Value& self, std::string_view name);

// Items that a for loop or a filter visits: of a list, keys of a dictionary, characters of a text.
Result<List> items_of(const Value& value);
// An element by place or key; undefined where there is none.
Value item_of(const Value& container, const Value& key);
Result<Value> binary_operation(std::string_view name, const Value& left, const Value& right);

// Python's str.strip and its kin: `characters` empty means white space.
std::string stripped(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace invar::chat
