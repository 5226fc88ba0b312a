#include "core/text/template/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>

namespace invar::chat {
namespace {

constexpr int kMaxDepth = 100;

// Counts how deep expressions nest.
class Depth {
 public:
  explicit Depth(int* depth) : depth_(depth) { ++*depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --*depth_; }

 private:
  int* depth_;
};

}  // namespace

Status ExpressionParser::unexpected(std::string_view expected) const {
  const Token& token = peek();
  const bool named = token.kind == TokenKind::kName || token.kind == TokenKind::kOperator ||
                     token.kind == TokenKind::kString || token.kind == TokenKind::kInteger;
  return syntax_error(token.line,
                      cat("expected ", expected,
                          named ? cat(", found \"", token.text, "\"") : std::string(" before the end of the tag")));
}

Status ExpressionParser::expect(std::string_view text) {
  return accept(text) ? Status() : unexpected(cat("\"", text, "\""));
}

Result<std::string> ExpressionParser::expect_name() {
  if (peek().kind != TokenKind::kName) return unexpected("a name");
  return take().text;
}

ExpressionPointer ExpressionParser::make(ExpressionKind kind, std::string name) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = peek().line;
  expression->name = std::move(name);
  return expression;
}

Result<ExpressionPointer> ExpressionParser::expression(bool with_condition) {
  const Depth depth(&depth_);
  if (depth_ > kMaxDepth) return syntax_error(peek().line, cat("expressions nest deeper than ", kMaxDepth));
  INVAR_ASSIGN(ExpressionPointer value, either());
  while (with_condition && is("if")) {
    auto condition = make(ExpressionKind::kCondition);
    take();
    condition->children.push_back(std::move(value));
    INVAR_ASSIGN(ExpressionPointer test, either());
    condition->children.push_back(std::move(test));
    condition->children.push_back(nullptr);
    if (accept("else")) {
      INVAR_ASSIGN(condition->children[2], expression());
    }
    value = std::move(condition);
  }
  return value;
}

Result<ExpressionPointer> ExpressionParser::tuple(bool with_condition) {
  INVAR_ASSIGN(ExpressionPointer first, expression(with_condition));
  if (!is(",")) return first;
  auto list = make(ExpressionKind::kList);
  list->children.push_back(std::move(first));
  while (accept(",")) {
    if (peek().kind == TokenKind::kBlockEnd || peek().kind == TokenKind::kPrintEnd || is(")")) break;
    INVAR_ASSIGN(ExpressionPointer next, expression(with_condition));
    list->children.push_back(std::move(next));
  }
  return list;
}

Result<ExpressionPointer> ExpressionParser::left_joined(std::initializer_list<std::string_view> operators,
                                                        Parse operand) {
  INVAR_ASSIGN(ExpressionPointer left, (this->*operand)());
  while (std::any_of(operators.begin(), operators.end(), [&](std::string_view text) { return is(text); })) {
    auto joined = make(ExpressionKind::kBinary, peek().text);
    take();
    joined->children.push_back(std::move(left));
    INVAR_ASSIGN(ExpressionPointer right, (this->*operand)());
    joined->children.push_back(std::move(right));
    left = std::move(joined);
  }
  return left;
}

Result<ExpressionPointer> ExpressionParser::either() { return left_joined({"or"}, &ExpressionParser::both); }
Result<ExpressionPointer> ExpressionParser::both() { return left_joined({"and"}, &ExpressionParser::negation); }

Result<ExpressionPointer> ExpressionParser::negation() {
  if (!is("not")) return comparison();
  const Depth depth(&depth_);
  if (depth_ > kMaxDepth) return syntax_error(peek().line, cat("expressions nest deeper than ", kMaxDepth));
  auto negated = make(ExpressionKind::kUnary, "not");
  take();
  INVAR_ASSIGN(ExpressionPointer operand, negation());
  negated->children.push_back(std::move(operand));
  return negated;
}

Result<ExpressionPointer> ExpressionParser::comparison() {
  INVAR_ASSIGN(ExpressionPointer left, sum());
  for (int count = 0;; ++count) {
    const bool not_in = is("not") && peek(1).text == "in";
    const bool compares = not_in || is("in") || is("==") || is("!=") || is("<") || is("<=") || is(">") || is(">=");
    if (!compares) break;
    if (count > 0) return syntax_error(peek().line, "a comparison of a comparison is not supported; use \"and\"");
    auto joined = make(ExpressionKind::kBinary, not_in ? "not in" : peek().text);
    take();
    if (not_in) take();
    joined->children.push_back(std::move(left));
    INVAR_ASSIGN(ExpressionPointer right, sum());
    joined->children.push_back(std::move(right));
    left = std::move(joined);
  }
  return left;
}

Result<ExpressionPointer> ExpressionParser::sum() { return left_joined({"+", "-"}, &ExpressionParser::joined); }
Result<ExpressionPointer> ExpressionParser::joined() { return left_joined({"~"}, &ExpressionParser::product); }
Result<ExpressionPointer> ExpressionParser::product() {
  return left_joined({"*", "/", "//", "%"}, &ExpressionParser::unary);
}

Result<ExpressionPointer> ExpressionParser::unary() {
  if (!is("-") && !is("+")) return power();
  const Depth depth(&depth_);
  if (depth_ > kMaxDepth) return syntax_error(peek().line, cat("expressions nest deeper than ", kMaxDepth));
  auto signed_value = make(ExpressionKind::kUnary, peek().text);
  take();
  INVAR_ASSIGN(ExpressionPointer operand, unary());
  signed_value->children.push_back(std::move(operand));
  return signed_value;
}

Result<ExpressionPointer> ExpressionParser::power() {
  INVAR_ASSIGN(ExpressionPointer operand, primary());
  INVAR_ASSIGN(operand, postfix(std::move(operand)));
  INVAR_ASSIGN(operand, tests(std::move(operand)));
  if (!is("**")) return operand;
  auto joined = make(ExpressionKind::kBinary, "**");
  take();
  joined->children.push_back(std::move(operand));
  INVAR_ASSIGN(ExpressionPointer right, unary());
  joined->children.push_back(std::move(right));
  return joined;
}

Result<ExpressionPointer> ExpressionParser::primary() {
  const Token token = peek();
  auto constant = make(ExpressionKind::kConstant);
  switch (token.kind) {
    case TokenKind::kString: {
      std::string text;
      while (peek().kind == TokenKind::kString) text += take().text;
      constant->constant = Value(std::move(text));
      return constant;
    }
    case TokenKind::kInteger: {
      int64_t value = 0;
      const auto end = token.text.data() + token.text.size();
      if (std::from_chars(token.text.data(), end, value).ec != std::errc()) {
        return syntax_error(token.line, cat("number ", token.text, " is too large"));
      }
      take();
      constant->constant = Value(value);
      return constant;
    }
    case TokenKind::kFloat: {
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      take();
      constant->constant = Value(value);
      return constant;
    }
    case TokenKind::kName: {
      take();
      if (token.text == "true" || token.text == "True") {
        constant->constant = Value(true);
      } else if (token.text == "false" || token.text == "False") {
        constant->constant = Value(false);
      } else if (token.text == "none" || token.text == "None") {
        constant->constant = Value(Value::None());
      } else {
        constant->kind = ExpressionKind::kName;
        constant->name = token.text;
      }
      return constant;
    }
    default: break;
  }
  if (accept("(")) {
    if (accept(")")) return make(ExpressionKind::kList);
    INVAR_ASSIGN(ExpressionPointer inner, tuple());
    INVAR_TRY(expect(")"));
    return inner;
  }
  if (accept("[")) {
    auto list = make(ExpressionKind::kList);
    while (!is("]")) {
      INVAR_ASSIGN(ExpressionPointer item, expression());
      list->children.push_back(std::move(item));
      if (!accept(",")) break;
    }
    INVAR_TRY(expect("]"));
    return list;
  }
  if (accept("{")) {
    auto dict = make(ExpressionKind::kDict);
    while (!is("}")) {
      INVAR_ASSIGN(ExpressionPointer key, expression());
      dict->children.push_back(std::move(key));
      INVAR_TRY(expect(":"));
      INVAR_ASSIGN(ExpressionPointer value, expression());
      dict->children.push_back(std::move(value));
      if (!accept(",")) break;
    }
    INVAR_TRY(expect("}"));
    return dict;
  }
  return unexpected("a value");
}

Result<ExpressionPointer> ExpressionParser::subscript(ExpressionPointer operand) {
  auto item = make(ExpressionKind::kSlice);
  item->children.push_back(std::move(operand));
  bool sliced = false;
  for (int part = 0; part < 3; ++part) {
    if (!is(":") && !is("]")) {
      INVAR_ASSIGN(ExpressionPointer bound, expression());
      item->children.push_back(std::move(bound));
    } else {
      item->children.push_back(nullptr);
    }
    if (part < 2 && accept(":")) {
      sliced = true;
    } else {
      break;
    }
  }
  INVAR_TRY(expect("]"));
  if (sliced) {
    item->children.resize(4);
  } else if (item->children[1] == nullptr) {
    return unexpected("a value between brackets");
  } else {
    item->kind = ExpressionKind::kItem;
  }
  return item;
}

Status ExpressionParser::arguments(std::vector<Argument>* out) {
  while (!is(")")) {
    Argument argument;
    if (peek().kind == TokenKind::kName && peek(1).kind == TokenKind::kOperator && peek(1).text == "=") {
      argument.name = take().text;
      take();
    }
    INVAR_ASSIGN(argument.value, expression());
    out->push_back(std::move(argument));
    if (!accept(",")) break;
  }
  return expect(")");
}

Result<ExpressionPointer> ExpressionParser::postfix(ExpressionPointer operand) {
  while (true) {
    if (accept(".")) {
      auto member = make(ExpressionKind::kAttribute);
      if (peek().kind == TokenKind::kInteger) {  // list.0
        member->kind = ExpressionKind::kItem;
        auto index = make(ExpressionKind::kConstant);
        index->constant = Value(static_cast<int64_t>(std::strtoll(take().text.c_str(), nullptr, 10)));
        member->children.push_back(std::move(operand));
        member->children.push_back(std::move(index));
      } else {
        INVAR_ASSIGN(member->name, expect_name());
        member->children.push_back(std::move(operand));
      }
      operand = std::move(member);
    } else if (accept("[")) {
      INVAR_ASSIGN(operand, subscript(std::move(operand)));
    } else if (accept("(")) {
      auto call = make(ExpressionKind::kCall);
      call->children.push_back(std::move(operand));
      INVAR_TRY(arguments(&call->arguments));
      operand = std::move(call);
    } else if (accept("|")) {
      auto filter = make(ExpressionKind::kFilter);
      INVAR_ASSIGN(filter->name, expect_name());
      filter->children.push_back(std::move(operand));
      if (accept("(")) INVAR_TRY(arguments(&filter->arguments));
      operand = std::move(filter);
    } else {
      return operand;
    }
  }
}

Result<ExpressionPointer> ExpressionParser::tests(ExpressionPointer operand) {
  while (is("is")) {
    take();
    auto test = make(ExpressionKind::kTest);
    const bool negated = accept("not");
    INVAR_ASSIGN(test->name, expect_name());
    test->children.push_back(std::move(operand));
    const Token& next = peek();
    const bool keyword = next.text == "and" || next.text == "or" || next.text == "else" || next.text == "if" ||
                         next.text == "is" || next.text == "not" || next.text == "in";
    if (accept("(")) {
      INVAR_TRY(arguments(&test->arguments));
    } else if (next.kind == TokenKind::kString || next.kind == TokenKind::kInteger || next.kind == TokenKind::kFloat ||
               (next.kind == TokenKind::kName && !keyword) || (next.kind == TokenKind::kOperator && next.text == "[")) {
      Argument argument;
      INVAR_ASSIGN(argument.value, primary());
      INVAR_ASSIGN(argument.value, postfix(std::move(argument.value)));
      test->arguments.push_back(std::move(argument));
    }
    operand = std::move(test);
    if (negated) {
      auto inverse = make(ExpressionKind::kUnary, "not");
      inverse->children.push_back(std::move(operand));
      operand = std::move(inverse);
    }
  }
  return operand;
}

}  // namespace invar::chat
