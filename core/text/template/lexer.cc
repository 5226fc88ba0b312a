#include "core/text/template/lexer.h"

#include <algorithm>

#include "core/text/utf8.h"

namespace invar::chat {
namespace {

bool is_name_start(char c) { return c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) INVAR_TRY(read_text());
    push(TokenKind::kEnd, {});
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, and the tag.
  Status read_text() {
    size_t tag = at_;
    while ((tag = source_.find('{', tag)) != std::string_view::npos && tag + 1 < source_.size() &&
           std::string_view("%{#").find(source_[tag + 1]) == std::string_view::npos) {
      ++tag;
    }
    if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
      push_text(source_.substr(at_));
      at_ = source_.size();
      return {};
    }
    std::string_view text = source_.substr(at_, tag - at_);
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') {
      while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    } else if (kind != '{' && sign != '+') {
      // Spaces between the beginning of the line and a block tag or comment.
      size_t end = text.size();
      while (end > 0 && (text[end - 1] == ' ' || text[end - 1] == '\t')) --end;
      const bool line_start = end > 0 ? text[end - 1] == '\n' : at_line_start();
      if (line_start) text = text.substr(0, end);
    }
    push_text(text);
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(tag), '\n'));
    at_ = tag + 2;
    if (at_ < source_.size() && (source_[at_] == '-' || (source_[at_] == '+' && kind != '{'))) ++at_;
    if (kind == '#') return skip_comment();
    push(kind == '{' ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, {});
    INVAR_TRY(read_tag(kind));
    return read_raw();
  }

  bool at_line_start() const { return at_ == 0 || source_[at_ - 1] == '\n'; }

  Status skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string_view::npos) return syntax_error(line_, "a comment {# is not closed");
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<ptrdiff_t>(at_), source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    const bool strip = end > at_ && source_[end - 1] == '-';
    at_ = end + 2;
    after_tag(strip, true);
    return {};
  }

  // What a closed tag takes of the text behind it.
  void after_tag(bool strip, bool block) {
    if (strip) {
      while (at_ < source_.size() && is_space(source_[at_])) line_ += source_[at_++] == '\n' ? 1 : 0;
    } else if (block && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
      ++line_;
    }
  }

  Status read_tag(char kind) {
    const char close = kind == '{' ? '}' : '%';
    int depth = 0;  // of brackets: "}}" may close two dictionaries
    while (true) {
      while (at_ < source_.size() && is_space(source_[at_])) line_ += source_[at_++] == '\n' ? 1 : 0;
      if (at_ >= source_.size()) return syntax_error(line_, cat("a tag {", kind, " is not closed"));
      const char c = source_[at_];
      const bool signed_close = (c == '-' || (c == '+' && close == '%')) && closes(1, close);
      if (depth == 0 && (closes(0, close) || signed_close)) {
        at_ += signed_close ? 3 : 2;
        push(kind == '{' ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, {});
        after_tag(signed_close && c == '-', kind != '{' && !(signed_close && c == '+'));
        return {};
      }
      if (is_name_start(c)) {
        const size_t begin = at_;
        while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_]))) ++at_;
        push(TokenKind::kName, std::string(source_.substr(begin, at_ - begin)));
      } else if (is_digit(c)) {
        read_number();
      } else if (c == '"' || c == '\'') {
        INVAR_TRY(read_string(c));
      } else {
        INVAR_TRY(read_operator(&depth));
      }
    }
  }

  // Whether `close` and a brace stand `skip` characters ahead.
  bool closes(size_t skip, char close) const {
    return at_ + skip + 1 < source_.size() && source_[at_ + skip] == close && source_[at_ + skip + 1] == '}';
  }

  void read_number() {
    const size_t begin = at_;
    bool is_float = false;
    while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) ++at_;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      is_float = true;
      ++at_;
      while (at_ < source_.size() && is_digit(source_[at_])) ++at_;
    }
    if (at_ < source_.size() && (source_[at_] | 0x20) == 'e') {
      size_t end = at_ + 1;
      if (end < source_.size() && (source_[end] == '-' || source_[end] == '+')) ++end;
      if (end < source_.size() && is_digit(source_[end])) {
        is_float = true;
        while (end < source_.size() && is_digit(source_[end])) ++end;
        at_ = end;
      }
    }
    std::string text(source_.substr(begin, at_ - begin));
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    push(is_float ? TokenKind::kFloat : TokenKind::kInteger, std::move(text));
  }

  Status read_string(char quote) {
    const int begin_line = line_;
    std::string out;
    for (++at_; at_ < source_.size() && source_[at_] != quote; ++at_) {
      const char c = source_[at_];
      if (c == '\n') ++line_;
      if (c != '\\' || at_ + 1 >= source_.size()) {
        out += c;
        continue;
      }
      const char next = source_[++at_];
      const size_t digits = next == 'x' ? 2 : next == 'u' ? 4 : next == 'U' ? 8 : 0;
      if (digits > 0) {
        uint32_t value = 0;
        for (size_t i = 0; i < digits; ++i) {
          const char digit = ++at_ < source_.size() ? source_[at_] : ' ';
          const int hex = is_digit(digit) ? digit - '0' : (digit | 0x20) - 'a' + 10;
          if (hex < 0 || hex > 15) return syntax_error(line_, "an escape in a string is no hexadecimal number");
          value = value << 4 | static_cast<uint32_t>(hex);
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
          return syntax_error(line_, "an escape in a string is no character");
        }
        out += utf8_of(value);
      } else if (next == 'n' || next == 't' || next == 'r' || next == '0') {
        out += next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : '\0';
      } else if (next == '\\' || next == '\'' || next == '"') {
        out += next;
      } else if (next != '\n') {  // an escape that is none stays as it is
        out += '\\';
        out += next;
      }
    }
    if (at_ >= source_.size()) return syntax_error(begin_line, "a string is not closed");
    ++at_;
    push(TokenKind::kString, std::move(out));
    return {};
  }

  Status read_operator(int* depth) {
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"}) {
      if (source_.substr(at_, 2) == two) {
        push(TokenKind::kOperator, std::string(two));
        at_ += 2;
        return {};
      }
    }
    const char c = source_[at_];
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos) {
      return syntax_error(line_, cat("character \"", c, "\" has no place in a tag"));
    }
    if (c == '(' || c == '[' || c == '{') ++*depth;
    if (c == ')' || c == ']' || c == '}') --*depth;
    push(TokenKind::kOperator, std::string(1, c));
    ++at_;
    return {};
  }

  // {% raw %}: text up to {% endraw %}.
  Status read_raw() {
    const size_t count = tokens_.size();
    if (count < 3 || tokens_[count - 1].kind != TokenKind::kBlockEnd || tokens_[count - 2].text != "raw" ||
        tokens_[count - 3].kind != TokenKind::kBlockBegin) {
      return {};
    }
    tokens_.resize(count - 3);
    const size_t end = source_.find("endraw", at_);
    const size_t open = end == std::string_view::npos ? end : source_.rfind("{%", end);
    const size_t close = end == std::string_view::npos ? end : source_.find("%}", end);
    if (open == std::string_view::npos || open < at_ || close == std::string_view::npos) {
      return syntax_error(line_, "{% raw %} is not closed");
    }
    push_text(source_.substr(at_, open - at_));
    at_ = close + 2;
    after_tag(source_[close - 1] == '-', true);
    return {};
  }

  void push(TokenKind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  void push_text(std::string_view text) {
    if (!text.empty()) push(TokenKind::kText, std::string(text));
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Status syntax_error(int line, std::string what) {
  return Error(Code::kInvalidArgument, "template.syntax", cat("line ", line, ": ", what));
}

Result<std::vector<Token>> tokenize_template(std::string_view source) {
  // One line end at the end of a template is not part of it.
  if (!source.empty() && source.back() == '\n') source.remove_suffix(1);
  return Lexer(source).run();
}

}  // namespace invar::chat
