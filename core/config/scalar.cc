// Scalars: from text by the field's kind and unit, and back.
#include <charconv>
#include <cmath>
#include <optional>

#include "core/config/tree.h"

namespace invar::config {

namespace {

std::optional<double> parse_double(std::string_view text) {
  if (text == "NaN" || text == "nan") return std::nan("");
  if (text == "Infinity" || text == "inf") return HUGE_VAL;
  if (text == "-Infinity" || text == "-inf") return -HUGE_VAL;
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // from_chars reads words such as "infinity" itself: only digits may begin a number here.
  const size_t first = text.starts_with('-') ? 1 : 0;
  const bool digits =
      text.size() > first && (std::isdigit(static_cast<unsigned char>(text[first])) || text[first] == '.');
  if (!digits || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <typename T>
std::optional<T> parse_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr Suffix kByteSuffixes[] = {{"KiB", 1024.}, {"MiB", 1048576.}, {"GiB", 1073741824.}, {"TiB", 1099511627776.},
                                    {"kB", 1e3},    {"KB", 1e3},       {"MB", 1e6},          {"GB", 1e9},
                                    {"TB", 1e12}};

// "256MiB" in a field of bytes, "0.5%" in a ratio; otherwise 1 and the text unchanged.
double take_suffix(const Field& field, std::string_view* text) {
  const std::string_view unit = field.unit;
  if (unit == "ratio" && text->ends_with('%')) {
    text->remove_suffix(1);
    return 0.01;
  }
  if (unit == "bytes") {
    for (const Suffix& suffix : kByteSuffixes) {
      if (!text->ends_with(suffix.text)) continue;
      text->remove_suffix(suffix.text.size());
      while (text->ends_with(' ')) text->remove_suffix(1);
      return suffix.factor;
    }
  }
  return 1;
}

// An integer field also takes "1e6" and "1.5GiB" when the value is whole.
std::optional<uint64_t> parse_whole(const Field& field, std::string_view text) {
  if (field.kind == Kind::kUint64) {
    if (const auto value = parse_integer<uint64_t>(text)) return *value;
  } else if (const auto value = parse_integer<int64_t>(text)) {
    return static_cast<uint64_t>(*value);
  }
  const double factor = take_suffix(field, &text);
  const auto value = parse_double(text);
  constexpr double kExact = 0x1p53;
  if (!value) return std::nullopt;
  const double whole = *value * factor;
  if (!(std::fabs(whole) <= kExact) || whole != std::floor(whole)) return std::nullopt;
  if (field.kind == Kind::kUint64 && whole < 0) return std::nullopt;
  return static_cast<uint64_t>(static_cast<int64_t>(whole));
}

const EnumValue* find_value(const EnumType& type, std::string_view text) {
  std::string plain(text);
  for (char& c : plain) {
    if (c == '-') c = '_';
  }
  for (const EnumValue& value : type.values) {
    if (plain == value.name || text == value.full_name) return &value;
  }
  if (const auto number = parse_integer<int32_t>(text)) {
    for (const EnumValue& value : type.values) {
      if (value.number == *number) return &value;
    }
  }
  return nullptr;
}

Status wrong_type(const Field& field, std::string_view text, const std::string& path) {
  constexpr size_t kShown = 60;
  return Error(Code::kInvalidArgument, "config.wrong_type",
               cat(path, ": \"", text.substr(0, kShown), text.size() > kShown ? "..." : "", "\" is not ",
                   expectation(field, true)));
}

}  // namespace

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char buffer[64];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string out(buffer, result.ptr);
  // "3e-04" is "3e-4".
  const size_t e = out.find('e');
  while (e != std::string::npos && e + 3 < out.size() && out[e + 2] == '0') out.erase(e + 2, 1);
  return out;
}

Result<Value> parse_scalar(const Field& field, std::string_view text, const std::string& path) {
  Value value;
  switch (field.kind) {
    case Kind::kBool:
      if (text != "true" && text != "false") return wrong_type(field, text, path);
      value.bits = text == "true";
      return value;
    case Kind::kInt32:
    case Kind::kInt64:
    case Kind::kUint64: {
      const auto whole = parse_whole(field, text);
      if (!whole) return wrong_type(field, text, path);
      value.bits = *whole;
      if (field.kind == Kind::kInt32 && value.as_int() != static_cast<int32_t>(value.as_int())) {
        return Error(Code::kInvalidArgument, "config.out_of_range", cat(path, ": ", text, " does not fit 32 bits"));
      }
      return value;
    }
    case Kind::kDouble: {
      std::string_view rest = text;
      const double factor = take_suffix(field, &rest);
      const auto number = parse_double(rest);
      if (!number) return wrong_type(field, text, path);
      // A percentage is divided, so that 0.5% is the double nearest to 0.005.
      value.bits = std::bit_cast<uint64_t>(factor == 0.01 ? *number / 100 : *number * factor);
      return value;
    }
    case Kind::kString:
      if (!valid_utf8(text)) return Error(Code::kInvalidArgument, "config.not_utf8", cat(path, ": not UTF-8"));
      value.text = text;
      return value;
    case Kind::kEnum: {
      const EnumValue* found = find_value(*field.enumeration, text);
      if (found == nullptr || found->number == 0) {
        std::vector<std::string_view> names;
        for (const EnumValue& each : field.enumeration->values) {
          if (each.number != 0) names.push_back(each.name);
        }
        Status status = wrong_type(field, text, path);
        const auto best = nearest(text, names);
        return Error(Code::kInvalidArgument, "config.unknown_value",
                     cat(status.message(), best.empty() ? "" : cat("; did you mean \"", best, "\"?")));
      }
      value.bits = static_cast<uint64_t>(int64_t{found->number});
      return value;
    }
    case Kind::kMessage:
    case Kind::kMap: break;
  }
  return wrong_type(field, text, path);
}

Value default_of(const Field& field) {
  if (field.default_text == nullptr) return {};
  auto value = parse_scalar(field, field.default_text, field.name);
  assert(value.ok());  // a test parses every default
  return value.ok() ? std::move(value).value() : Value{};
}

std::string scalar_text(const Field& field, const Value& value) {
  switch (field.kind) {
    case Kind::kBool: return value.bits != 0 ? "true" : "false";
    case Kind::kInt32:
    case Kind::kInt64: return std::to_string(value.as_int());
    case Kind::kUint64: return std::to_string(value.bits);
    case Kind::kDouble: return number_text(value.as_double());
    case Kind::kEnum:
      for (const EnumValue& each : field.enumeration->values) {
        if (each.number == value.as_int()) return each.name;
      }
      return std::to_string(value.as_int());
    default: return value.text;
  }
}

}  // namespace invar::config
