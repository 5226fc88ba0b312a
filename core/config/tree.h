// A message as a tree over the field table: the form in which configs are read, changed, checked and printed.
// Thread rule: values, no sharing.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/config/table.h"

namespace invar::config {

struct Node;

// One element of a field. Numbers, booleans and enums are in `bits` (two's complement or IEEE 754).
struct Value {
  uint64_t bits = 0;
  std::string text;  // kString, and the mapped string of kMap
  std::string key;   // kMap
  std::unique_ptr<Node> node;

  int64_t as_int() const { return static_cast<int64_t>(bits); }
  double as_double() const { return std::bit_cast<double>(bits); }
};

// Invariant: values.size() == type->fields.size(); a field that is not repeated and no map has at most one value.
struct Node {
  explicit Node(const MessageType& message) : type(&message), values(message.fields.size()) {}

  std::vector<Value>& of(const Field& field) { return values[static_cast<size_t>(&field - type->fields.data())]; }
  const std::vector<Value>& of(const Field& field) const {
    return values[static_cast<size_t>(&field - type->fields.data())];
  }
  // The child of a singular message field, made when absent.
  Node& child(const Field& field);

  const MessageType* type;
  std::vector<std::vector<Value>> values;
};

// "optimizer.lr"; `path` empty at the root.
std::string join_key(std::string_view path, std::string_view name);
bool valid_utf8(std::string_view text);

// The binary form. A number that the table does not know is "config.unknown_field"; damage is "config.corrupt".
Result<Node> from_wire(const MessageType& type, std::string_view bytes);
// Fields in the order of their numbers, maps sorted by key.
std::string to_wire(const Node& node);

// One scalar from its text. "256MiB" counts as bytes, "0.5%" as a ratio. `path` is for messages.
Result<Value> parse_scalar(const Field& field, std::string_view text, const std::string& path);
// The value that an absent scalar stands for.
Value default_of(const Field& field);
// As printed in text and in messages; strings as they are.
std::string scalar_text(const Field& field, const Value& value);
// Shortest decimal form that reads back to the same double; "NaN", "Infinity", "-Infinity".
std::string number_text(double value);

Result<Node> from_json(const MessageType& type, std::string_view text);
// Reads into a node that may hold values already; a field that is set here replaces them.
Status merge_json(Node& node, const std::string& path, std::string_view text);
std::string to_json(const Node& node, bool pretty);
std::string json_string(std::string_view text);
Result<Node> from_text(const MessageType& type, std::string_view text);
std::string to_text(const Node& node);

// "optimizer.lr=3e-4"; lists and objects in JSON form; "null" clears; "+=" appends to a list.
Status apply_override(Node& node, std::string_view assignment);
void fill_defaults(Node& node);
// Ranges, enum values and required fields, the whole tree.
Status check(const Node& node, const std::string& path = {});

}  // namespace invar::config
