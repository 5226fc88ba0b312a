// Template values from JSON and to JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text/template/value.h"

namespace invar::chat {
namespace {

constexpr int kMaxDepth = 64;

// Builds values from the parser's events, so that the order of keys stays and no tree is built twice.
class ValueEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return put(Value(Value::None())); }
  bool boolean(bool value) override { return put(Value(value)); }
  bool number_integer(number_integer_t value) override { return put(Value(int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    return put(value <= INT64_MAX ? Value(static_cast<int64_t>(value)) : Value(static_cast<double>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return put(Value(value)); }
  bool string(string_t& value) override { return put(Value(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    Dict entries = std::move(open_.back().entries);
    open_.pop_back();
    return put(Value::dict(std::move(entries)));
  }
  bool end_array() override {
    List items = std::move(open_.back().items);
    open_.pop_back();
    return put(Value::list(std::move(items)));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = cat("invalid JSON at byte ", position);
    return false;
  }

  Value result;
  std::string error;

 private:
  struct Open {
    bool is_object;
    std::string key;
    Dict entries;
    List items;
  };
  bool open(bool is_object) {
    if (open_.size() >= kMaxDepth) {
      error = cat("nested deeper than ", kMaxDepth);
      return false;
    }
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }
  bool put(Value value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().is_object) {
      Dict& entries = open_.back().entries;
      const auto same = std::find_if(entries.begin(), entries.end(),
                                     [&](const auto& entry) { return entry.first == open_.back().key; });
      if (same != entries.end()) {
        same->second = std::move(value);
      } else {
        entries.emplace_back(std::move(open_.back().key), std::move(value));
      }
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }
  std::vector<Open> open_;
};

void write_string(std::string_view text, bool ensure_ascii, std::string* out) {
  *out += nlohmann::json(text).dump(-1, ' ', ensure_ascii, nlohmann::json::error_handler_t::replace);
}

void write(const Value& value, const JsonStyle& style, int depth, std::string* out) {
  const auto line = [&](int level) {
    if (style.indent >= 0) *out += '\n' + std::string(static_cast<size_t>(style.indent * level), ' ');
  };
  const std::string comma = !style.item_separator.empty() ? style.item_separator : style.indent >= 0 ? "," : ", ";
  const std::string colon = !style.key_separator.empty() ? style.key_separator : ": ";
  if (depth > kMaxDepth) {
    *out += "null";
  } else if (value.is_string()) {
    write_string(value.string(), style.ensure_ascii, out);
  } else if (value.is_bool()) {
    *out += value.integer() != 0 ? "true" : "false";
  } else if (value.is_float()) {
    *out += std::isnan(value.number())   ? "NaN"
            : std::isinf(value.number()) ? value.number() < 0 ? "-Infinity" : "Infinity"
                                         : float_text(value.number());
  } else if (value.is_integer()) {
    *out += std::to_string(value.integer());
  } else if (value.is_list()) {
    if (value.items().empty()) {
      *out += "[]";
      return;
    }
    *out += '[';
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i > 0) *out += comma;
      line(depth + 1);
      write(value.items()[i], style, depth + 1, out);
    }
    line(depth);
    *out += ']';
  } else if (value.is_dict() || value.is_namespace()) {
    Dict entries = value.entries();
    if (style.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    }
    if (entries.empty()) {
      *out += "{}";
      return;
    }
    *out += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) *out += comma;
      line(depth + 1);
      write_string(entries[i].first, style.ensure_ascii, out);
      *out += colon;
      write(entries[i].second, style, depth + 1, out);
    }
    line(depth);
    *out += '}';
  } else {
    *out += "null";
  }
}

}  // namespace

Result<Value> value_of_json(std::string_view text) {
  ValueEvents events;
  bool good = false;
  try {
    good = nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  } catch (const nlohmann::json::exception& error) {
    events.error = error.what();
  }
  if (good) return std::move(events.result);
  return Error(Code::kDataLoss, "template.bad_json", events.error.empty() ? "invalid JSON" : events.error);
}

std::string json_of(const Value& value, const JsonStyle& style) {
  std::string out;
  write(value, style, 0, &out);
  return out;
}

std::string json_of(const Value& value, int indent) {
  return json_of(value, JsonStyle{.indent = indent, .item_separator = {}, .key_separator = {}});
}

}  // namespace invar::chat
