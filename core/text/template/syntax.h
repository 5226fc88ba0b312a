// The parsed form of a chat template. Thread rule: const once parsed; share between threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/text/template/value.h"

namespace invar::chat {

struct Expression;
using ExpressionPointer = std::unique_ptr<Expression>;

enum class ExpressionKind {
  kConstant,   // constant
  kName,       // name
  kList,       // children
  kDict,       // children: key, value, key, value
  kUnary,      // name: "-", "+", "not"; children[0]
  kBinary,     // name: an operator, "and", "or", "in", "not in"; children[0], [1]
  kCondition,  // children: value if true, condition, value if false (may be null)
  kAttribute,  // children[0] . name
  kItem,       // children[0] [ children[1] ]
  kSlice,      // children[0] [ children[1] : children[2] : children[3] ], each may be null
  kCall,       // children[0] ( arguments )
  kFilter,     // children[0] | name ( arguments )
  kTest,       // children[0] is name ( arguments )
};

struct Argument {
  std::string name;  // empty: by place
  ExpressionPointer value;
};

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  int line = 0;
  std::string name;
  Value constant;
  std::vector<ExpressionPointer> children;
  std::vector<Argument> arguments;
};

struct Statement;
using Block = std::vector<Statement>;

enum class StatementKind {
  kText,        // text
  kPrint,       // value
  kIf,          // value, body, otherwise (an elif is an if in it)
  kFor,         // names in value, if condition: body; otherwise when nothing was visited
  kSet,         // names = value, or names[0].names[1] when `attribute`; body when there is no value
  kMacro,       // names[0](arguments): body
  kCall,        // value is the call; body is what caller() gives
  kFilter,      // value is a chain of filters on the body
  kGeneration,  // body: text that the model writes
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  std::vector<std::string> names;
  bool attribute = false;
  ExpressionPointer value, condition;
  std::vector<Argument> arguments;  // of a macro: names and defaults
  Block body, otherwise;
};

// "template.syntax" names the line; "template.unsupported" a tag that is not supported.
Result<Block> parse_template(std::string_view source);

}  // namespace invar::chat
