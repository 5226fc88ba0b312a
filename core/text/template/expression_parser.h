// Expressions of a chat template, by recursive descent. Thread rule: one thread at a time.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/template/lexer.h"
#include "core/text/template/syntax.h"

namespace invar::chat {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  // With a condition (x if c else y); in a for tag the list has none.
  Result<ExpressionPointer> expression(bool with_condition = true);
  // Expressions between commas are one tuple.
  Result<ExpressionPointer> tuple(bool with_condition = true);
  // Filters and calls behind `operand`, without tests.
  Result<ExpressionPointer> postfix(ExpressionPointer operand);
  // The names and values between parentheses; the opening one is read already.
  Status arguments(std::vector<Argument>* out);

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(std::string_view text) const {
    return peek().text == text && (peek().kind == TokenKind::kOperator || peek().kind == TokenKind::kName);
  }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    take();
    return true;
  }
  Status expect(std::string_view text);
  Result<std::string> expect_name();
  Status unexpected(std::string_view expected) const;

 private:
  using Parse = Result<ExpressionPointer> (ExpressionParser::*)();
  Result<ExpressionPointer> either();      // or
  Result<ExpressionPointer> both();        // and
  Result<ExpressionPointer> negation();    // not
  Result<ExpressionPointer> comparison();  // == != < <= > >= in, not in
  Result<ExpressionPointer> sum();         // + -
  Result<ExpressionPointer> joined();      // ~
  Result<ExpressionPointer> product();     // * / // %
  Result<ExpressionPointer> unary();       // - +
  Result<ExpressionPointer> power();       // **
  Result<ExpressionPointer> primary();
  Result<ExpressionPointer> tests(ExpressionPointer operand);
  Result<ExpressionPointer> subscript(ExpressionPointer operand);
  Result<ExpressionPointer> left_joined(std::initializer_list<std::string_view> operators, Parse operand);
  ExpressionPointer make(ExpressionKind kind, std::string name = {}) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace invar::chat
