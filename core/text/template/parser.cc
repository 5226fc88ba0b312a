// Tags of a chat template to statements.
#include <algorithm>
#include <initializer_list>

#include "core/text/template/expression_parser.h"
#include "core/text/template/syntax.h"

namespace invar::chat {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::string_view kTags = "if, for, set, macro, call, filter, generation, raw, break, continue";

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  Result<Block> run() {
    INVAR_ASSIGN(Block block, read_block({}));
    if (in_.peek().kind != TokenKind::kEnd) return in_.unexpected("the end of the template");
    return block;
  }

 private:
  // Statements up to a tag whose name is in `ends`; its name is read, the rest of the tag is not.
  Result<Block> read_block(std::initializer_list<std::string_view> ends) {
    Block block;
    if (++depth_ > kMaxDepth) return syntax_error(in_.peek().line, cat("tags nest deeper than ", kMaxDepth));
    while (true) {
      const Token token = in_.peek();
      Statement statement;
      statement.line = token.line;
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() > 0)
          return syntax_error(token.line, cat("the template ends without {% ", *(ends.end() - 1), " %}"));
        break;
      }
      in_.take();
      if (token.kind == TokenKind::kText) {
        statement.text = token.text;
      } else if (token.kind == TokenKind::kPrintBegin) {
        statement.kind = StatementKind::kPrint;
        INVAR_ASSIGN(statement.value, in_.tuple());
        INVAR_TRY(close(TokenKind::kPrintEnd));
      } else {
        const std::string name = in_.peek().text;
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          ended_by_ = in_.take().text;
          break;
        }
        INVAR_TRY(read_tag(&statement));
      }
      block.push_back(std::move(statement));
    }
    --depth_;
    return block;
  }

  Status close(TokenKind kind = TokenKind::kBlockEnd) {
    if (in_.peek().kind != kind) return in_.unexpected(kind == TokenKind::kBlockEnd ? "%}" : "}}");
    in_.take();
    return {};
  }

  // The body up to {% name %}.
  Status read_body(std::string_view name, Block* body) {
    INVAR_TRY(close());
    INVAR_ASSIGN(*body, read_block({name}));
    return close();
  }

  Status read_tag(Statement* out) {
    INVAR_ASSIGN(const std::string name, in_.expect_name());
    if (name == "if") return read_if(out);
    if (name == "for") return read_for(out);
    if (name == "set") return read_set(out);
    if (name == "macro") return read_macro(out);
    if (name == "call") {
      out->kind = StatementKind::kCall;
      if (in_.accept("(")) INVAR_TRY(in_.arguments(&out->arguments));
      INVAR_ASSIGN(out->value, in_.expression());
      if (out->value->kind != ExpressionKind::kCall) return syntax_error(out->line, "{% call %} needs a call");
      return read_body("endcall", &out->body);
    }
    if (name == "filter") {
      out->kind = StatementKind::kFilter;
      auto body = std::make_unique<Expression>();
      body->kind = ExpressionKind::kName;  // bound to the body's text
      body->line = out->line;
      auto first = std::make_unique<Expression>();
      first->kind = ExpressionKind::kFilter;
      first->line = out->line;
      INVAR_ASSIGN(first->name, in_.expect_name());
      first->children.push_back(std::move(body));
      if (in_.accept("(")) INVAR_TRY(in_.arguments(&first->arguments));
      INVAR_ASSIGN(out->value, in_.postfix(std::move(first)));
      return read_body("endfilter", &out->body);
    }
    if (name == "generation") {
      out->kind = StatementKind::kGeneration;
      return read_body("endgeneration", &out->body);
    }
    if (name == "break" || name == "continue") {
      out->kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
      if (loops_ == 0) return syntax_error(out->line, cat("{% ", name, " %} outside of a for"));
      return close();
    }
    return Error(Code::kUnimplemented, "template.unsupported",
                 cat("line ", out->line, ": tag \"", name, "\" is not supported; supported: ", kTags));
  }

  Status read_if(Statement* out) {
    out->kind = StatementKind::kIf;
    INVAR_ASSIGN(out->value, in_.tuple());
    INVAR_TRY(close());
    INVAR_ASSIGN(out->body, read_block({"elif", "else", "endif"}));
    if (ended_by_ == "elif") {
      Statement inner;
      inner.line = in_.peek().line;
      if (++depth_ > kMaxDepth) return syntax_error(inner.line, cat("tags nest deeper than ", kMaxDepth));
      INVAR_TRY(read_if(&inner));
      --depth_;
      out->otherwise.push_back(std::move(inner));
      return {};
    }
    if (ended_by_ == "else") return read_body("endif", &out->otherwise);
    return close();
  }

  Status read_for(Statement* out) {
    out->kind = StatementKind::kFor;
    const bool bracket = in_.accept("(");
    do {
      INVAR_ASSIGN(std::string name, in_.expect_name());
      out->names.push_back(std::move(name));
    } while (in_.accept(",") && !in_.is("in"));
    if (bracket) INVAR_TRY(in_.expect(")"));
    INVAR_TRY(in_.expect("in"));
    INVAR_ASSIGN(out->value, in_.tuple(false));
    if (in_.accept("if")) {
      INVAR_ASSIGN(out->condition, in_.expression());
    }
    if (in_.is("recursive")) {
      return Error(Code::kUnimplemented, "template.unsupported", cat("line ", out->line, ": a recursive for"));
    }
    INVAR_TRY(close());
    ++loops_;
    INVAR_ASSIGN(out->body, read_block({"else", "endfor"}));
    --loops_;
    if (ended_by_ == "else") return read_body("endfor", &out->otherwise);
    return close();
  }

  Status read_set(Statement* out) {
    out->kind = StatementKind::kSet;
    do {
      INVAR_ASSIGN(std::string name, in_.expect_name());
      out->names.push_back(std::move(name));
      if (out->names.size() == 1 && in_.accept(".")) {
        out->attribute = true;
        INVAR_ASSIGN(std::string field, in_.expect_name());
        out->names.push_back(std::move(field));
        break;
      }
    } while (in_.accept(","));
    if (in_.accept("=")) {
      INVAR_ASSIGN(out->value, in_.tuple());
      return close();
    }
    if (in_.is("|")) {  // filters on what the body gives
      auto body = std::make_unique<Expression>();
      body->kind = ExpressionKind::kName;
      body->line = out->line;
      INVAR_ASSIGN(out->condition, in_.postfix(std::move(body)));
    }
    return read_body("endset", &out->body);
  }

  Status read_macro(Statement* out) {
    out->kind = StatementKind::kMacro;
    INVAR_ASSIGN(std::string name, in_.expect_name());
    out->names.push_back(std::move(name));
    INVAR_TRY(in_.expect("("));
    while (!in_.is(")")) {
      Argument argument;
      INVAR_ASSIGN(argument.name, in_.expect_name());
      if (in_.accept("=")) {
        INVAR_ASSIGN(argument.value, in_.expression());
      }
      out->arguments.push_back(std::move(argument));
      if (!in_.accept(",")) break;
    }
    INVAR_TRY(in_.expect(")"));
    const int loops = std::exchange(loops_, 0);
    INVAR_TRY(read_body("endmacro", &out->body));
    loops_ = loops;
    return {};
  }

  ExpressionParser in_;
  std::string ended_by_;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Result<Block> parse_template(std::string_view source) {
  INVAR_ASSIGN(std::vector<Token> tokens, tokenize_template(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace invar::chat
