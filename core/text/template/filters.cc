// Filters of chat templates.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/text/template/library.h"

namespace invar::chat {
namespace {

using Args = Arguments;
using Answer = Result<Value>;

Status wrong(std::string_view filter, const Value& input, std::string_view expected) {
  return template_error(cat("filter ", filter, ": a ", input.type_name(), ", expected ", expected));
}

// ASCII letters change case; so do those of Latin-1, Greek and Cyrillic that lie at fixed distances.
std::string changed_case(std::string_view text, bool upper) {
  std::string out(text);
  for (char& c : out) {
    if (upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') c = static_cast<char>(c ^ 0x20);
  }
  return out;
}

std::string title(std::string_view text) {
  std::string out(text);
  bool inside = false;
  for (char& c : out) {
    const bool letter = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || static_cast<unsigned char>(c) >= 0x80;
    if (letter && static_cast<unsigned char>(c) < 0x80) c = static_cast<char>(inside ? c | 0x20 : c & ~0x20);
    inside = letter || c == '\'' || (c >= '0' && c <= '9');
  }
  return out;
}

Answer trim(const Value& input, const Args& args) {
  const Value characters = args.get(0, "chars");
  return Value(stripped(input.text(), characters.is_string() ? characters.string() : "", true, true));
}
Answer lower(const Value& input, const Args&) { return Value(changed_case(input.text(), false)); }
Answer upper(const Value& input, const Args&) { return Value(changed_case(input.text(), true)); }
Answer titled(const Value& input, const Args&) { return Value(title(input.text())); }
Answer capitalize(const Value& input, const Args&) {
  std::string text = changed_case(input.text(), false);
  if (!text.empty()) text[0] = changed_case(text.substr(0, 1), true)[0];
  return Value(std::move(text));
}
Answer string_of(const Value& input, const Args&) { return Value(input.text()); }
Answer same(const Value& input, const Args&) { return input; }

Answer length(const Value& input, const Args&) {
  if (input.is_string()) return Value(static_cast<int64_t>(characters_of(input.string()).size()));
  if (input.is_list()) return Value(static_cast<int64_t>(input.items().size()));
  if (input.is_dict()) return Value(static_cast<int64_t>(input.entries().size()));
  if (input.is_undefined()) return Value(int64_t{0});
  return wrong("length", input, "text, a list or a dictionary");
}

Answer to_json(const Value& input, const Args& args) {
  JsonStyle style;
  const Value indent = args.get(1, "indent");
  // The one argument by place is ensure_ascii in transformers, indent in Jinja; both say indent by name.
  if (indent.is_integer()) style.indent = static_cast<int>(std::clamp<int64_t>(indent.integer(), 0, 16));
  style.ensure_ascii = args.get(0, "ensure_ascii").truthy();
  style.sort_keys = args.get(3, "sort_keys").truthy();
  const Value separators = args.get(2, "separators");
  if (separators.is_list() && separators.items().size() == 2) {
    style.item_separator = separators.items()[0].text();
    style.key_separator = separators.items()[1].text();
  }
  if (input.is_undefined() || input.is_function()) return wrong("tojson", input, "a value that JSON has");
  return Value(json_of(input, style));
}

Answer join(const Value& input, const Args& args) {
  INVAR_ASSIGN(const List items, items_of(input));
  const std::string between = args.get(0, "d").text();
  const Value attribute = args.get(1, "attribute");
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    out += attribute.is_string() ? item_of(items[i], attribute).text() : items[i].text();
  }
  return Value(std::move(out));
}

Answer replace(const Value& input, const Args& args) {
  const std::string text = input.text(), from = args.get(0, "old").text(), to = args.get(1, "new").text();
  const Value count = args.get(2, "count");
  int64_t left = count.is_integer() ? count.integer() : INT64_MAX;
  if (from.empty()) return wrong("replace", Value(from), "a text that is not empty");
  std::string out;
  size_t done = 0;
  for (size_t at = 0; left > 0 && (at = text.find(from, at)) != std::string::npos; --left) {
    out.append(text, done, at - done).append(to);
    done = at += from.size();
  }
  return Value(out.append(text, done));
}

Answer fallback(const Value& input, const Args& args) {
  const bool use = input.is_undefined() || (args.get(1, "boolean").truthy() && !input.truthy());
  if (!use) return input;
  return args.has(0, "default_value") ? args.get(0, "default_value") : Value("");
}

Answer first(const Value& input, const Args&) {
  INVAR_ASSIGN(const List items, items_of(input));
  return items.empty() ? Value() : items.front();
}
Answer last(const Value& input, const Args&) {
  INVAR_ASSIGN(const List items, items_of(input));
  return items.empty() ? Value() : items.back();
}
Answer list(const Value& input, const Args&) {
  INVAR_ASSIGN(List items, items_of(input));
  return Value::list(std::move(items));
}
Answer reverse(const Value& input, const Args&) {
  INVAR_ASSIGN(List items, items_of(input));
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return Value::list(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.string();
  return Value(std::move(out));
}

Value pair(Value key, Value value) {
  List both;
  both.push_back(std::move(key));
  both.push_back(std::move(value));
  return Value::list(std::move(both));
}

Answer entries(const Value& input, const Args&) {
  if (input.is_undefined()) return Value::list({});
  if (!input.is_dict()) return wrong("items", input, "a dictionary");
  List out;
  for (const auto& [key, value] : input.entries()) out.push_back(pair(Value(key), value));
  return Value::list(std::move(out));
}

Value folded(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? Value(changed_case(value.string(), false)) : value;
}

// Sorts stably by key(item); the first pair without an order is the error.
template <typename Key>
Status sort_by(List* items, bool descending, Key key) {
  Status failure;
  std::stable_sort(items->begin(), items->end(), [&](const Value& a, const Value& b) {
    const Result<int> order = key(a).compare(key(b));
    if (!order.ok()) {
      if (failure.ok()) failure = order.status();
      return false;
    }
    return descending ? order.value() > 0 : order.value() < 0;
  });
  return failure;
}

Answer dict_sort(const Value& input, const Args& args) {
  INVAR_ASSIGN(const Value listed, entries(input, {}));
  List items = listed.items();
  const size_t by = args.get(1, "by").text() == "value" ? 1 : 0;
  const bool exact = args.get(0, "case_sensitive").truthy();
  INVAR_TRY(sort_by(&items, args.get(2, "reverse").truthy(),
                    [&](const Value& item) { return folded(item.items()[by], exact); }));
  return Value::list(std::move(items));
}

Answer sort(const Value& input, const Args& args) {
  INVAR_ASSIGN(List items, items_of(input));
  const Value attribute = args.get(2, "attribute");
  const bool exact = args.get(1, "case_sensitive").truthy();
  INVAR_TRY(sort_by(&items, args.get(0, "reverse").truthy(), [&](const Value& item) {
    return folded(attribute.is_string() ? item_of(item, attribute) : item, exact);
  }));
  return Value::list(std::move(items));
}

Answer unique(const Value& input, const Args& args) {
  INVAR_ASSIGN(const List items, items_of(input));
  const bool exact = args.get(0, "case_sensitive").truthy();
  List out;
  for (const Value& item : items) {
    const Value key = folded(item, exact);
    if (std::none_of(out.begin(), out.end(), [&](const Value& other) { return folded(other, exact).equals(key); })) {
      out.push_back(item);
    }
  }
  return Value::list(std::move(out));
}

// Whether `item` passes the test that `args` names from `place` on; its truth without one.
Result<bool> passes(const Value& item, const Args& args, size_t place) {
  if (args.positional.size() <= place) return item.truthy();
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(place) + 1, args.positional.end());
  return apply_test(args.positional[place].text(), item, rest);
}

template <bool keep, bool by_attribute>
Answer select(const Value& input, const Args& args) {
  INVAR_ASSIGN(const List items, items_of(input));
  if (by_attribute && args.positional.empty()) return template_error("filter selectattr: no attribute is named");
  List out;
  for (const Value& item : items) {
    INVAR_ASSIGN(const bool passed,
                 passes(by_attribute ? item_of(item, args.positional[0]) : item, args, by_attribute ? 1 : 0));
    if (passed == keep) out.push_back(item);
  }
  return Value::list(std::move(out));
}

Answer map(const Value& input, const Args& args) {
  INVAR_ASSIGN(const List items, items_of(input));
  List out;
  const Value attribute = args.get(SIZE_MAX, "attribute");
  Args rest;
  if (args.positional.size() > 1) rest.positional.assign(args.positional.begin() + 1, args.positional.end());
  for (const Value& item : items) {
    if (!attribute.is_undefined()) {
      Value found = item_of(item, attribute);
      if (found.is_undefined() && args.has(SIZE_MAX, "default")) found = args.get(SIZE_MAX, "default");
      out.push_back(std::move(found));
    } else if (args.positional.empty()) {
      return template_error("filter map: neither an attribute nor a filter is named");
    } else {
      INVAR_ASSIGN(Value mapped, apply_filter(args.positional[0].text(), item, rest));
      out.push_back(std::move(mapped));
    }
  }
  return Value::list(std::move(out));
}

Answer indent(const Value& input, const Args& args) {
  const Value width = args.get(0, "width");
  const std::string margin =
      width.is_string()
          ? width.string()
          : std::string(static_cast<size_t>(width.is_integer() ? std::clamp<int64_t>(width.integer(), 0, 256) : 4),
                        ' ');
  const bool first_too = args.get(1, "first").truthy(), blank_too = args.get(2, "blank").truthy();
  const std::string text = input.text();
  std::string out;
  for (size_t at = 0, number = 0; at <= text.size(); ++number) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (number > 0) out += '\n';
    if ((number > 0 || first_too) && (end > at || blank_too)) out += margin;
    out.append(text, at, end - at);
    at = end + 1;
  }
  return Value(std::move(out));
}

Answer to_int(const Value& input, const Args& args) {
  if (input.is_float()) {
    const double value = std::trunc(input.number());
    return std::fabs(value) < 9e18 ? Value(static_cast<int64_t>(value)) : Value(int64_t{0});
  }
  if (input.is_number()) return Value(input.integer());
  if (input.is_string()) {
    const std::string text = stripped(input.string(), "", true, true);
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (!text.empty() && *end == '\0' && std::fabs(value) < 9e18) return Value(static_cast<int64_t>(value));
  }
  const Value missing = args.get(0, "default");
  return missing.is_undefined() ? Value(int64_t{0}) : missing;
}

Answer to_float(const Value& input, const Args& args) {
  if (input.is_number()) return Value(input.number());
  if (input.is_string()) {
    char* end = nullptr;
    const double value = std::strtod(input.string().c_str(), &end);
    if (!input.string().empty() && *end == '\0') return Value(value);
  }
  const Value missing = args.get(0, "default");
  return missing.is_undefined() ? Value(0.0) : missing;
}

Answer absolute(const Value& input, const Args&) {
  if (input.is_float()) return Value(std::fabs(input.number()));
  if (input.is_number()) return Value(input.integer() < 0 ? -input.integer() : input.integer());
  return wrong("abs", input, "a number");
}

Answer rounded(const Value& input, const Args& args) {
  if (!input.is_number()) return wrong("round", input, "a number");
  const Value digits = args.get(0, "precision");
  const double scale = std::pow(10.0, static_cast<double>(digits.integer()));
  const std::string method = args.get(1, "method").text();
  const double value = input.number() * scale;
  const double whole = method == "ceil"    ? std::ceil(value)
                       : method == "floor" ? std::floor(value)
                                           : std::nearbyint(value);
  return Value(whole / scale);
}

template <bool smallest>
Answer extreme(const Value& input, const Args&) {
  INVAR_ASSIGN(const List items, items_of(input));
  Value best;
  for (const Value& item : items) {
    if (best.is_undefined()) {
      best = item;
      continue;
    }
    INVAR_ASSIGN(const int order, item.compare(best));
    if (smallest ? order < 0 : order > 0) best = item;
  }
  return best;
}

Answer sum(const Value& input, const Args& args) {
  INVAR_ASSIGN(const List items, items_of(input));
  const Value attribute = args.get(0, "attribute");
  Value total = args.has(1, "start") ? args.get(1, "start") : Value(int64_t{0});
  for (const Value& item : items) {
    INVAR_ASSIGN(total, binary_operation("+", total, attribute.is_undefined() ? item : item_of(item, attribute)));
  }
  return total;
}

struct Entry {
  std::string_view name;
  Library::Filter filter;
};
constexpr Entry kFilters[] = {
    {"abs", absolute},
    {"capitalize", capitalize},
    {"count", length},
    {"d", fallback},
    {"default", fallback},
    {"dictsort", dict_sort},
    {"first", first},
    {"float", to_float},
    {"indent", indent},
    {"int", to_int},
    {"items", entries},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"lower", lower},
    {"map", map},
    {"max", extreme<false>},
    {"min", extreme<true>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"replace", replace},
    {"reverse", reverse},
    {"round", rounded},
    {"safe", same},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"string", string_of},
    {"sum", sum},
    {"title", titled},
    {"tojson", to_json},
    {"trim", trim},
    {"unique", unique},
    {"upper", upper},
};

}  // namespace

Result<Value> apply_filter(std::string_view name, const Value& input, const Arguments& arguments) {
  std::string supported;
  for (const Entry& entry : kFilters) {
    if (entry.name == name) return entry.filter(input, arguments);
    supported += cat(supported.empty() ? "" : ", ", entry.name);
  }
  return Error(Code::kUnimplemented, "template.unsupported",
               cat("filter \"", name, "\" is not supported; supported: ", supported));
}

}  // namespace invar::chat
