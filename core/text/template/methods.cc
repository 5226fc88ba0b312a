// Methods of texts and dictionaries in chat templates, and what operators do.
#include <algorithm>
#include <cmath>

#include "core/text/template/library.h"

namespace invar::chat {
namespace {

using Args = Arguments;
using Answer = Result<Value>;

constexpr size_t kMaxText = size_t{64} << 20;  // of a product with a number

bool is_space(std::string_view character) {
  return character.size() == 1
             ? std::string_view(" \t\n\r\v\f\x1C\x1D\x1E\x1F").find(character[0]) != std::string_view::npos
             : character == "\xC2\x85" || character == "\xC2\xA0" || character == "\xE1\x9A\x80" ||
                   (character >= "\xE2\x80\x80" && character <= "\xE2\x80\x8A") || character == "\xE2\x80\xA8" ||
                   character == "\xE2\x80\xA9" || character == "\xE2\x80\xAF" || character == "\xE2\x81\x9F" ||
                   character == "\xE3\x80\x80";
}

template <bool left, bool right>
Answer strip(const Value& self, const Args& args) {
  const Value characters = args.get(0, "chars");
  return Value(stripped(self.string(), characters.is_string() ? characters.string() : "", left, right));
}

Answer split(const Value& self, const Args& args) {
  const std::string& text = self.string();
  const Value separator = args.get(0, "sep"), most = args.get(1, "maxsplit");
  int64_t left = most.is_integer() && most.integer() >= 0 ? most.integer() : INT64_MAX;
  List parts;
  if (!separator.is_string()) {  // at runs of white space
    const auto characters = characters_of(text);
    size_t i = 0;
    const auto skip = [&] {
      while (i < characters.size() && is_space(characters[i])) ++i;
    };
    for (skip(); i < characters.size(); skip()) {
      const char* begin = characters[i].data();
      if (left-- == 0) {
        parts.push_back(Value(stripped(std::string_view(begin, static_cast<size_t>(text.data() + text.size() - begin)),
                                       "", false, true)));
        break;
      }
      size_t bytes = 0;
      while (i < characters.size() && !is_space(characters[i])) bytes += characters[i++].size();
      parts.push_back(Value(std::string(begin, bytes)));
    }
    return Value::list(std::move(parts));
  }
  const std::string& between = separator.string();
  if (between.empty()) return template_error("split: the separator is empty");
  size_t done = 0;
  for (size_t at = 0; left > 0 && (at = text.find(between, done)) != std::string::npos; --left) {
    parts.push_back(Value(text.substr(done, at - done)));
    done = at + between.size();
  }
  parts.push_back(Value(text.substr(done)));
  return Value::list(std::move(parts));
}

Answer rsplit(const Value& self, const Args& args) {
  const Value separator = args.get(0, "sep"), most = args.get(1, "maxsplit");
  if (!separator.is_string() || separator.string().empty()) return template_error("rsplit: needs a separator");
  std::string_view text = self.string();
  int64_t left = most.is_integer() && most.integer() >= 0 ? most.integer() : INT64_MAX;
  List parts;
  for (size_t at = 0; left > 0 && (at = text.rfind(separator.string())) != std::string_view::npos; --left) {
    parts.push_back(Value(std::string(text.substr(at + separator.string().size()))));
    text = text.substr(0, at);
  }
  parts.push_back(Value(std::string(text)));
  std::reverse(parts.begin(), parts.end());
  return Value::list(std::move(parts));
}

Answer split_lines(const Value& self, const Args&) {
  List lines;
  const std::string& text = self.string();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t stop = end > at && text[end - 1] == '\r' ? end - 1 : end;
    lines.push_back(Value(text.substr(at, stop - at)));
    at = end + 1;
  }
  return Value::list(std::move(lines));
}

// Whether one of the texts of an argument, one or a tuple, fits.
template <typename Fits>
Answer any_of(const Value& argument, Fits fits) {
  if (argument.is_string()) return Value(fits(argument.string()));
  if (!argument.is_list()) return template_error(cat("expected text, found a ", argument.type_name()));
  return Value(std::any_of(argument.items().begin(), argument.items().end(),
                           [&](const Value& item) { return item.is_string() && fits(item.string()); }));
}

Answer starts_with(const Value& self, const Args& args) {
  return any_of(args.get(0, "prefix"), [&](const std::string& part) { return self.string().starts_with(part); });
}
Answer ends_with(const Value& self, const Args& args) {
  return any_of(args.get(0, "suffix"), [&](const std::string& part) { return self.string().ends_with(part); });
}

Answer find(const Value& self, const Args& args) {
  const size_t at = self.string().find(args.get(0, "sub").text());
  if (at == std::string::npos) return Value(int64_t{-1});
  return Value(static_cast<int64_t>(characters_of(std::string_view(self.string()).substr(0, at)).size()));
}

Answer count(const Value& self, const Args& args) {
  const std::string part = args.get(0, "sub").text();
  int64_t found = 0;
  for (size_t at = 0; !part.empty() && (at = self.string().find(part, at)) != std::string::npos; at += part.size())
    ++found;
  return Value(found);
}

Answer remove_prefix(const Value& self, const Args& args) {
  const std::string part = args.get(0, "prefix").text();
  return Value(self.string().starts_with(part) ? self.string().substr(part.size()) : self.string());
}
Answer remove_suffix(const Value& self, const Args& args) {
  const std::string part = args.get(0, "suffix").text();
  const std::string& text = self.string();
  return Value(text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text);
}

template <bool (*all)(char)>
Answer all_of(const Value& self, const Args&) {
  const std::string& text = self.string();
  return Value(!text.empty() && std::all_of(text.begin(), text.end(), all));
}
constexpr bool digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

// Methods that do what a filter of the name does to the text.
template <const char* const* name>
Answer as_filter(const Value& self, const Args& args) {
  return apply_filter(*name, self, args);
}
constexpr const char* kLower = "lower";
constexpr const char* kUpper = "upper";
constexpr const char* kTitle = "title";
constexpr const char* kCapitalize = "capitalize";
constexpr const char* kReplace = "replace";

Answer join_items(const Value& self, const Args& args) {
  Args between;
  between.positional.push_back(self);
  return apply_filter("join", args.get(0, "iterable"), between);
}

Answer get(const Value& self, const Args& args) {
  const Value found = item_of(self, args.get(0, "key"));
  if (!found.is_undefined()) return found;
  return args.has(1, "default") ? args.get(1, "default") : Value(Value::None());
}
Answer keys(const Value& self, const Args&) {
  List out;
  for (const auto& entry : self.entries()) out.push_back(Value(entry.first));
  return Value::list(std::move(out));
}
Answer values(const Value& self, const Args&) {
  List out;
  for (const auto& entry : self.entries()) out.push_back(entry.second);
  return Value::list(std::move(out));
}
Answer entries(const Value& self, const Args& args) { return apply_filter("items", self, args); }

struct Entry {
  std::string_view name;
  Library::Method method;
};
constexpr Entry kTextMethods[] = {
    {"strip", strip<true, true>},
    {"lstrip", strip<true, false>},
    {"rstrip", strip<false, true>},
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", split_lines},
    {"startswith", starts_with},
    {"endswith", ends_with},
    {"find", find},
    {"count", count},
    {"removeprefix", remove_prefix},
    {"removesuffix", remove_suffix},
    {"isdigit", all_of<digit>},
    {"isalpha", all_of<letter>},
    {"lower", as_filter<&kLower>},
    {"upper", as_filter<&kUpper>},
    {"title", as_filter<&kTitle>},
    {"capitalize", as_filter<&kCapitalize>},
    {"replace", as_filter<&kReplace>},
    {"join", join_items},
};
constexpr Entry kDictMethods[] = {{"get", get}, {"keys", keys}, {"values", values}, {"items", entries}};

Answer arithmetic(char operation, const Value& left, const Value& right) {
  const double a = left.number(), b = right.number();
  const bool whole = !left.is_float() && !right.is_float();
  const int64_t x = left.integer(), y = right.integer();
  int64_t result = 0;
  switch (operation) {
    case '+':
      if (!whole) return Value(a + b);
      if (__builtin_add_overflow(x, y, &result)) break;
      return Value(result);
    case '-':
      if (!whole) return Value(a - b);
      if (__builtin_sub_overflow(x, y, &result)) break;
      return Value(result);
    case '*':
      if (!whole) return Value(a * b);
      if (__builtin_mul_overflow(x, y, &result)) break;
      return Value(result);
    default: break;
  }
  if (operation == '^') {
    const double power = std::pow(a, b);
    return whole && y >= 0 && std::fabs(power) < 9e15 ? Value(static_cast<int64_t>(power)) : Value(power);
  }
  if (b == 0 && operation != '+' && operation != '-' && operation != '*') return template_error("division by zero");
  if (operation == '/') return Value(a / b);
  if (operation == 'q') {
    if (!whole) return Value(std::floor(a / b));
    if (y == -1) return arithmetic('-', Value(int64_t{0}), left);
    return Value(x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0));
  }
  if (operation == '%') {
    if (!whole) return Value(a - b * std::floor(a / b));
    if (y == -1) return Value(int64_t{0});
    const int64_t rest = x % y;
    return Value(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
  }
  return template_error("a number is too large");
}

Answer repeated(const std::string& text, int64_t times) {
  if (times <= 0) return Value("");
  if (static_cast<uint64_t>(times) > kMaxText / std::max<size_t>(text.size(), 1))
    return template_error("a text is too long");
  std::string out;
  for (int64_t i = 0; i < times; ++i) out += text;
  return Value(std::move(out));
}

}  // namespace

std::string stripped(std::string_view text, std::string_view characters, bool left, bool right) {
  const auto set = characters_of(characters);
  const auto goes = [&](std::string_view character) {
    return characters.empty() ? is_space(character) : std::find(set.begin(), set.end(), character) != set.end();
  };
  const auto all = characters_of(text);
  size_t begin = 0, end = all.size();
  while (left && begin < end && goes(all[begin])) ++begin;
  while (right && end > begin && goes(all[end - 1])) --end;
  if (begin == end) return {};
  return std::string(all[begin].data(),
                     static_cast<size_t>(all[end - 1].data() + all[end - 1].size() - all[begin].data()));
}

Value bound_method(const Value& self, std::string_view name) {
  const auto bind = [&](const auto& table) -> Value {
    for (const Entry& entry : table) {
      if (entry.name == name) {
        return Value::function(
            [self, method = entry.method](const Arguments& arguments) { return method(self, arguments); });
      }
    }
    return {};
  };
  if (self.is_string()) return bind(kTextMethods);
  if (self.is_dict()) return bind(kDictMethods);
  return {};
}

Result<List> items_of(const Value& value) {
  if (value.is_list()) return value.items();
  List items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    for (const std::string_view character : characters_of(value.string()))
      items.push_back(Value(std::string(character)));
    return items;
  }
  if (value.is_dict()) {
    for (const auto& entry : value.entries()) items.push_back(Value(entry.first));
    return items;
  }
  return template_error(cat("a ", value.type_name(), " has no items to visit"));
}

Value item_of(const Value& container, const Value& key) {
  if (container.is_dict() || container.is_namespace()) return key.is_string() ? container.find(key.string()) : Value();
  // "a.b" reads through dictionaries, as Jinja's attribute arguments do.
  if (!key.is_integer() && !key.is_bool()) return {};
  int64_t place = key.integer();
  if (container.is_list()) {
    const auto size = static_cast<int64_t>(container.items().size());
    if (place < 0) place += size;
    return place >= 0 && place < size ? container.items()[static_cast<size_t>(place)] : Value();
  }
  if (container.is_string()) {
    const auto characters = characters_of(container.string());
    const auto size = static_cast<int64_t>(characters.size());
    if (place < 0) place += size;
    if (place >= 0 && place < size) return Value(std::string(characters[static_cast<size_t>(place)]));
  }
  return {};
}

Result<Value> binary_operation(std::string_view name, const Value& left, const Value& right) {
  if (name == "~") return Value(left.text() + right.text());
  if (name == "==") return Value(left.equals(right));
  if (name == "!=") return Value(!left.equals(right));
  if (name == "in" || name == "not in") {
    bool found = false;
    if (right.is_string()) {
      if (!left.is_string()) return template_error(cat("a ", left.type_name(), " cannot be in a text"));
      found = right.string().find(left.string()) != std::string::npos;
    } else {
      INVAR_ASSIGN(const List items, items_of(right));
      found = std::any_of(items.begin(), items.end(), [&](const Value& item) { return item.equals(left); });
    }
    return Value(found == (name == "in"));
  }
  if (name == "<" || name == "<=" || name == ">" || name == ">=") {
    INVAR_ASSIGN(const int order, left.compare(right));
    return Value(name == "<" ? order < 0 : name == "<=" ? order <= 0 : name == ">" ? order > 0 : order >= 0);
  }
  if (left.is_number() && right.is_number()) {
    return arithmetic(name == "**" ? '^' : name == "//" ? 'q' : name[0], left, right);
  }
  if (name == "+" && left.is_string() && right.is_string()) return Value(left.string() + right.string());
  if (name == "+" && left.is_list() && right.is_list()) {
    List all = left.items();
    all.insert(all.end(), right.items().begin(), right.items().end());
    return Value::list(std::move(all));
  }
  if (name == "*" && left.is_string() && right.is_integer()) return repeated(left.string(), right.integer());
  if (name == "*" && right.is_string() && left.is_integer()) return repeated(right.string(), left.integer());
  return template_error(cat("a ", left.type_name(), " ", name, " a ", right.type_name(), " is not possible"));
}

}  // namespace invar::chat
