// A JSON reader that calls back and builds nothing, so that a hostile text costs no more memory than it has bytes.
// Derive, override what is legal at this place, and call fail() for the rest.
//
// Invariant: the first failure wins; after it no further callback runs. nlohmann's iterative SAX parser is used with
// exceptions off: text that is not JSON arrives as a Status.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/base/status.h"
#include "core/container/tensor_info.h"

namespace invar {

class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  // Parses the whole of `text`. `label` names the text in messages, `bad_reason` is the reason for text that is not
  // JSON or not an object, `depth` the deepest nesting allowed.
  Status run(std::string_view label, std::string_view text, std::string_view bad_reason, int depth);

 protected:
  virtual bool on_object() = 0;
  virtual bool on_object_end() = 0;
  virtual bool on_array() = 0;
  virtual bool on_array_end() = 0;
  virtual bool on_key(std::string& key) = 0;
  virtual bool on_string(std::string& value) = 0;
  virtual bool on_unsigned(uint64_t value) = 0;
  // null, true, false, a negative number, a fraction or one too large for 64 bits; `text` shows it.
  virtual bool on_other(std::string_view text) = 0;

  // Records the failure and stops; returns false.
  bool fail(Status status);
  const std::string& label() const { return label_; }
  std::string_view bad_reason() const { return bad_reason_; }
  int level() const { return level_; }  // open objects and arrays

 private:
  friend struct JsonEventsAdapter;
  std::string label_;
  std::string bad_reason_;
  int max_depth_ = 0;
  int level_ = 0;
  Status status_;
};

}  // namespace invar
