// The field table of invar.v1: what the lite runtime does not know about its messages. Generated from the .proto files.
// Thread rule: constants.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace invar::config {

enum class Kind : uint8_t { kBool, kInt32, kInt64, kUint64, kDouble, kString, kEnum, kMessage, kMap };

struct EnumValue {
  const char* name;       // "bf16": what files say
  const char* full_name;  // "DTYPE_BF16": accepted too
  int32_t number;
  const char* doc;
};

struct EnumType {
  const char* full_name;
  std::span<const EnumValue> values;
};

struct MessageType;

struct Field {
  const char* name = "";
  int32_t number = 0;
  Kind kind = Kind::kBool;
  bool repeated = false;
  const EnumType* enumeration = nullptr;  // kEnum
  const MessageType* message = nullptr;   // kMessage; kMap is from string to string
  const char* default_text = nullptr;     // in text form; null: zero or empty
  const char* unit = "";
  bool has_min = false;
  double min = 0;
  bool has_max = false;
  double max = 0;
  bool has_above = false;
  double above = 0;
  bool required = false;
  bool presence = false;  // presence means something: defaults do not create it
  const char* doc = "";
};

struct MessageType {
  const char* full_name;  // "invar.v1.TrainConfig"
  const char* doc;
  std::span<const Field> fields;

  const Field* find(std::string_view name) const;
  const Field* find(int32_t number) const;
  std::string_view short_name() const;  // "TrainConfig"
};

std::span<const MessageType> message_types();
// By "invar.v1.TrainConfig", "TrainConfig" or, for configs, "train"; null when there is none.
const MessageType* find_message(std::string_view name);
// The words that name configs: "train", "convert", ...
std::string config_words();

// The candidate closest to `word` by edit distance, or empty when none is close.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);
// "; did you mean \"lr\"?" or, where nothing is close, "; known: a, b, c".
std::string suggestion(std::string_view word, std::span<const std::string_view> candidates);

// What a value of the field must be, for messages: "a number", "one of fp32, bf16", "a list of strings".
std::string expectation(const Field& field, bool element = false);

}  // namespace invar::config
