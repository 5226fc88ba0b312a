#include "core/text/template/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace invar::chat {
namespace {

constexpr int kMaxDepth = 64;  // of what is printed

// As Python quotes: single quotes unless only those occur inside.
std::string quoted_text(std::string_view text) {
  const bool single = text.find('\'') == std::string_view::npos || text.find('"') != std::string_view::npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += "\\x";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + quote;
}

}  // namespace

Status template_error(std::string message) {
  return Error(Code::kInvalidArgument, "template.error", std::move(message));
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  // The shortest digits; exponents from 1e16 on and below 1e-4, as Python.
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = plain ? std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr
                         : std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  std::string text(buffer, end);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::vector<std::string_view> characters_of(std::string_view text) {
  std::vector<std::string_view> characters;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    characters.push_back(text.substr(at, end - at));
    at = end;
  }
  return characters;
}

Value Arguments::get(size_t place, std::string_view name) const {
  if (place < positional.size()) return positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return value;
  }
  return {};
}

bool Arguments::has(size_t place, std::string_view name) const {
  return place < positional.size() ||
         std::any_of(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
}

Value Value::name_space(Dict items) { return Value(Data(std::make_shared<Namespace>(Namespace{std::move(items)}))); }

const Dict& Value::entries() const {
  if (is_namespace()) return std::get<std::shared_ptr<Namespace>>(data_)->fields;
  return *std::get<std::shared_ptr<Dict>>(data_);
}

int64_t Value::integer() const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  if (is_integer()) return std::get<int64_t>(data_);
  return 0;
}

double Value::number() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }

Value Value::find(std::string_view key) const {
  for (const auto& [name, value] : entries()) {
    if (name == key) return value;
  }
  return {};
}

void Value::assign(const std::string& key, Value value) const {
  Dict& fields = std::get<std::shared_ptr<Namespace>>(data_)->fields;
  for (auto& [name, old] : fields) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  fields.emplace_back(key, std::move(value));
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !items().empty();
  if (is_dict()) return !entries().empty();
  return true;
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"undefined", "none", "bool", "int",       "float",
                                    "str",       "list", "dict", "namespace", "function"};
  return kNames[data_.index()];
}

void Value::write(std::string* out, bool quoted, int depth) const {
  if (depth > kMaxDepth) {
    *out += "...";
  } else if (is_none()) {
    *out += "None";
  } else if (is_bool()) {
    *out += integer() != 0 ? "True" : "False";
  } else if (is_integer()) {
    *out += std::to_string(integer());
  } else if (is_float()) {
    *out += float_text(number());
  } else if (is_string()) {
    *out += quoted ? quoted_text(string()) : string();
  } else if (is_list()) {
    *out += '[';
    for (size_t i = 0; i < items().size(); ++i) {
      if (i > 0) *out += ", ";
      items()[i].write(out, true, depth + 1);
    }
    *out += ']';
  } else if (is_dict() || is_namespace()) {
    *out += '{';
    bool first = true;
    for (const auto& [key, value] : entries()) {
      if (!std::exchange(first, false)) *out += ", ";
      *out += quoted_text(key) + ": ";
      value.write(out, true, depth + 1);
    }
    *out += '}';
  } else if (is_function()) {
    *out += "<function>";
  }
}

std::string Value::text() const {
  std::string out;
  write(&out, false, 0);
  return out;
}

std::string Value::repr() const {
  std::string out;
  write(&out, true, 0);
  return out;
}

bool Value::equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    return is_float() || other.is_float() ? number() == other.number() : integer() == other.integer();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_string()) return string() == other.string();
  if (is_list()) {
    return std::equal(items().begin(), items().end(), other.items().begin(), other.items().end(),
                      [](const Value& a, const Value& b) { return a.equals(b); });
  }
  if (is_dict()) {
    if (entries().size() != other.entries().size()) return false;
    return std::all_of(entries().begin(), entries().end(), [&](const auto& entry) {
      const Value match = other.find(entry.first);
      return !match.is_undefined() && match.equals(entry.second);
    });
  }
  if (is_namespace()) {
    return std::get<std::shared_ptr<Namespace>>(data_) == std::get<std::shared_ptr<Namespace>>(other.data_);
  }
  return !is_function();
}

Result<int> Value::compare(const Value& other) const {
  const auto sign = [](const auto& a, const auto& b) { return a < b ? -1 : b < a ? 1 : 0; };
  if (is_number() && other.is_number()) {
    if (is_float() || other.is_float()) return sign(number(), other.number());
    return sign(integer(), other.integer());
  }
  if (is_string() && other.is_string()) return sign(string(), other.string());
  if (is_list() && other.is_list()) {
    const size_t common = std::min(items().size(), other.items().size());
    for (size_t i = 0; i < common; ++i) {
      if (items()[i].equals(other.items()[i])) continue;
      return items()[i].compare(other.items()[i]);
    }
    return sign(items().size(), other.items().size());
  }
  return template_error(cat("a ", type_name(), " and a ", other.type_name(), " have no order"));
}

}  // namespace invar::chat
