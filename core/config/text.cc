// Protobuf's text form: `optimizer { lr: 3e-4 }`, `# comments`, lists as repeated fields or in brackets.
#include <cctype>
#include <cmath>

#include "core/config/tree.h"

namespace invar::config {

namespace {

constexpr int kDeepest = 32;

struct Token {
  enum Type { kEnd, kWord, kString, kPunctuation } type = kEnd;
  std::string text;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Status read(Node& root) {
    INVAR_TRY(next());
    return fields(root, "", "", 0);
  }

 private:
  Status syntax(std::string_view expected) const {
    return Error(Code::kInvalidArgument, "config.syntax",
                 cat("text, line ", line_, ": expected ", expected, ", got ",
                     token_.type == Token::kEnd ? std::string("the end") : cat("\"", token_.text.substr(0, 40), "\"")));
  }

  bool is(char c) const { return token_.type == Token::kPunctuation && token_.text[0] == c; }

  Status next() {
    skip_blanks();
    token_ = {};
    if (at_ >= text_.size()) return {};
    const char c = text_[at_];
    if (c == '"' || c == '\'') return quoted(c);
    const auto word = [](char w) {
      return std::isalnum(static_cast<unsigned char>(w)) || w == '_' || w == '.' || w == '+' || w == '-';
    };
    if (!word(c)) {
      token_ = {Token::kPunctuation, std::string(1, c)};
      ++at_;
      return {};
    }
    token_.type = Token::kWord;
    while (at_ < text_.size() && word(text_[at_])) token_.text += text_[at_++];
    return {};
  }

  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(c))) {
        if (c == '\n') ++line_;
        ++at_;
      } else {
        return;
      }
    }
  }

  Status quoted(char quote) {
    token_.type = Token::kString;
    for (++at_; at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n'; ++at_) {
      if (text_[at_] != '\\') {
        token_.text += text_[at_];
      } else if (++at_ < text_.size()) {
        INVAR_TRY(escape());
      }
    }
    if (at_ >= text_.size() || text_[at_] != quote) {
      return Error(Code::kInvalidArgument, "config.syntax", cat("text, line ", line_, ": string without its end"));
    }
    ++at_;
    return {};
  }

  Status escape() {
    const char c = text_[at_];
    constexpr std::string_view kFrom = "abfnrtv\\'\"?", kTo = "\a\b\f\n\r\t\v\\'\"?";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      token_.text += kTo[i];
      return {};
    }
    // \ooo and \xhh
    const bool hex = c == 'x';
    const int base = hex ? 16 : 8, digits = hex ? 2 : 3;
    int value = 0, count = 0;
    size_t i = hex ? at_ + 1 : at_;
    for (; i < text_.size() && count < digits; ++i, ++count) {
      const int digit = std::isdigit(static_cast<unsigned char>(text_[i])) ? text_[i] - '0'
                        : hex && std::isxdigit(static_cast<unsigned char>(text_[i]))
                            ? std::tolower(static_cast<unsigned char>(text_[i])) - 'a' + 10
                            : 99;
      if (digit >= base) break;
      value = value * base + digit;
    }
    if (count == 0 || value > 255) {
      return Error(Code::kInvalidArgument, "config.syntax", cat("text, line ", line_, ": unknown escape \\", c));
    }
    token_.text += static_cast<char>(value);
    at_ = i - 1;
    return {};
  }

  // Fields up to `close` ("" is the end of the text).
  Status fields(Node& node, const std::string& path, std::string_view close, int depth) {
    if (depth > kDeepest) {
      return Error(Code::kInvalidArgument, "config.too_deep", cat(path, ": nested deeper than ", kDeepest));
    }
    while (true) {
      if (token_.type == Token::kEnd) return close.empty() ? Status() : syntax(cat("\"", close, "\""));
      if (token_.type == Token::kPunctuation && token_.text == close) return next();
      if (token_.type != Token::kWord) return syntax("a field name");
      const std::string name = token_.text, here = join_key(path, name);
      const Field* field = node.type->find(name);
      if (field == nullptr) {
        std::vector<std::string_view> names;
        for (const Field& each : node.type->fields) names.push_back(each.name);
        return Error(
            Code::kInvalidArgument, "config.unknown_field",
            cat(here, ": unknown field of ", node.type->short_name(), suggestion(name, names), " (line ", line_, ")"));
      }
      INVAR_TRY(next());
      INVAR_TRY(value_of(node, *field, here, depth));
      if (is(',') || is(';')) INVAR_TRY(next());
    }
  }

  Status value_of(Node& node, const Field& field, const std::string& path, int depth) {
    const bool many = field.repeated || field.kind == Kind::kMap;
    if (!many && !node.of(field).empty()) {
      return Error(Code::kInvalidArgument, "config.duplicate_field", cat(path, ": given twice (line ", line_, ")"));
    }
    const bool colon = is(':');
    if (colon) INVAR_TRY(next());
    if (!is('[')) return element(node, field, path, depth, colon);
    if (!many) return syntax(expectation(field, true));
    INVAR_TRY(next());
    while (!is(']')) {
      INVAR_TRY(element(node, field, path, depth, colon));
      if (is(',')) {
        INVAR_TRY(next());
      } else if (!is(']')) {
        return syntax("\",\" or \"]\"");
      }
    }
    return next();
  }

  Status element(Node& node, const Field& field, const std::string& path, int depth, bool colon) {
    if (field.kind == Kind::kMessage || field.kind == Kind::kMap) {
      if (!is('{') && !is('<')) return syntax(cat("\"{\" after ", path));
      const std::string_view close = is('{') ? "}" : ">";
      INVAR_TRY(next());
      auto& values = node.of(field);
      if (field.kind == Kind::kMap) return map_entry(values, path, close);
      values.emplace_back();
      values.back().node = std::make_unique<Node>(*field.message);
      return fields(*values.back().node, path, close, depth + 1);
    }
    if (!colon) return syntax(cat("\":\" after ", path));
    const bool is_string = token_.type == Token::kString;
    if (token_.type != Token::kWord && !is_string) return syntax(cat(expectation(field, true), " for ", path));
    std::string text = token_.text;
    INVAR_TRY(next());
    while (is_string && token_.type == Token::kString) {  // neighbours join, as in C
      text += token_.text;
      INVAR_TRY(next());
    }
    // Words are no strings, and quoted text is no boolean or enum; units such as "256MiB" come quoted.
    const bool text_kind = field.kind == Kind::kString;
    if (is_string != text_kind && !(is_string && (field.kind != Kind::kBool && field.kind != Kind::kEnum))) {
      return Error(Code::kInvalidArgument, "config.wrong_type",
                   cat(path, ": expected ", expectation(field, true), ", got ", is_string ? "a string" : text));
    }
    INVAR_ASSIGN(auto value, parse_scalar(field, text, path));
    node.of(field).push_back(std::move(value));
    return {};
  }

  Status map_entry(std::vector<Value>& values, const std::string& path, std::string_view close) {
    Value value;
    while (!(token_.type == Token::kPunctuation && token_.text == close)) {
      if (token_.type != Token::kWord || (token_.text != "key" && token_.text != "value")) {
        return syntax(cat("\"key\" or \"value\" in ", path));
      }
      std::string& part = token_.text == "key" ? value.key : value.text;
      INVAR_TRY(next());
      if (!is(':')) return syntax("\":\"");
      INVAR_TRY(next());
      if (token_.type != Token::kString) return syntax("a string");
      part = token_.text;
      if (!valid_utf8(part)) return Error(Code::kInvalidArgument, "config.not_utf8", cat(path, ": not UTF-8"));
      INVAR_TRY(next());
      if (is(',') || is(';')) INVAR_TRY(next());
    }
    for (const Value& other : values) {
      if (other.key == value.key) {
        return Error(Code::kInvalidArgument, "config.duplicate_field", cat(path, ".", value.key, ": given twice"));
      }
    }
    values.push_back(std::move(value));
    return next();
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  Token token_;
};

std::string quoted_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      for (const int shift : {6, 3, 0}) out += shift == 6 ? cat('\\', byte >> 6) : cat((byte >> shift) & 7);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Other readers of the text form know the full names only.
std::string enum_full_name(const Field& field, const Value& value) {
  for (const EnumValue& each : field.enumeration->values) {
    if (each.number == value.as_int()) return each.full_name;
  }
  return std::to_string(value.as_int());
}

void write(const Node& node, const std::string& indent, std::string& out) {
  for (const Field& field : node.type->fields) {
    for (const Value& value : node.of(field)) {
      out += indent + field.name;
      if (field.kind == Kind::kMessage) {
        out += " {\n";
        write(*value.node, indent + "  ", out);
        out += indent + "}\n";
      } else if (field.kind == Kind::kMap) {
        out += " { key: " + quoted_text(value.key) + " value: " + quoted_text(value.text) + " }\n";
      } else if (field.kind == Kind::kString) {
        out += ": " + quoted_text(value.text) + "\n";
      } else if (field.kind == Kind::kDouble && !std::isfinite(value.as_double())) {
        out += std::isnan(value.as_double()) ? ": nan\n" : value.as_double() > 0 ? ": inf\n" : ": -inf\n";
      } else if (field.kind == Kind::kEnum) {
        out += ": " + enum_full_name(field, value) + "\n";
      } else {
        out += ": " + scalar_text(field, value) + "\n";
      }
    }
  }
}

}  // namespace

Result<Node> from_text(const MessageType& type, std::string_view text) {
  Node node(type);
  INVAR_TRY(Reader(text).read(node));
  return node;
}

std::string to_text(const Node& node) {
  std::string out;
  write(node, "", out);
  return out;
}

}  // namespace invar::config
