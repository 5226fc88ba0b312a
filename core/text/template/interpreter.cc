#include "core/text/template/interpreter.h"

#include <algorithm>

#include "core/text/template/library.h"

namespace invar::chat {
namespace {

constexpr int64_t kMaxSteps = 2'000'000;
constexpr int64_t kTurnSteps = 4;  // what a turn of a loop costs beside its body
constexpr size_t kMaxOutput = size_t{256} << 20;
constexpr int kMaxCalls = 200;

Status limit_error(std::string_view what) {
  return Error(Code::kResourceExhausted, "template.limit", cat("the template ", what));
}

enum class Flow { kNext, kBreak, kContinue };

class Interpreter {
 public:
  explicit Interpreter(Dict globals) { scopes_.push_back(std::move(globals)); }

  Result<Rendered> run(const Block& block) {
    INVAR_TRY(execute(block).status);
    return std::move(out_);
  }

 private:
  // How a block ended, or why it failed.
  struct Ended {
    Status status;
    Flow flow = Flow::kNext;
  };

  Ended execute(const Block& block) {
    for (const Statement& statement : block) {
      if (++steps_ > kMaxSteps) return {limit_error("takes too many steps")};
      if (out_.text.size() > kMaxOutput) return {limit_error("writes too much")};
      Ended ended = execute(statement);
      if (!ended.status.ok()) {
        // The line is told once, by the innermost statement.
        if (ended.status.message().rfind("line ", 0) != 0) {
          ended.status = ended.status.with_context(cat("line ", statement.line));
        }
        return ended;
      }
      if (ended.flow != Flow::kNext) return ended;
    }
    return {};
  }

  Ended execute(const Statement& statement) {
    switch (statement.kind) {
      case StatementKind::kText: out_.text += statement.text; return {};
      case StatementKind::kPrint: return print(statement);
      case StatementKind::kIf: {
        const Result<Value> value = evaluate(*statement.value);
        if (!value.ok()) return {value.status()};
        return execute(value.value().truthy() ? statement.body : statement.otherwise);
      }
      case StatementKind::kFor: return loop(statement);
      case StatementKind::kSet: return {set(statement)};
      case StatementKind::kMacro:
        assign(statement.names[0], macro(statement.names[0], statement.arguments, statement.body));
        return {};
      case StatementKind::kCall: return {call_block(statement)};
      case StatementKind::kFilter: {
        Result<std::string> body = captured(statement.body);
        if (!body.ok()) return {body.status()};
        const Result<Value> value = with_body(*statement.value, std::move(body).value());
        if (!value.ok()) return {value.status()};
        out_.text += value.value().text();
        return {};
      }
      case StatementKind::kGeneration: {
        const size_t begin = out_.text.size();
        const Ended ended = execute(statement.body);
        if (ended.status.ok() && capturing_ == 0) out_.generated.emplace_back(begin, out_.text.size());
        return ended;
      }
      case StatementKind::kBreak: return {{}, Flow::kBreak};
      case StatementKind::kContinue: return {{}, Flow::kContinue};
    }
    return {};
  }

  Ended print(const Statement& statement) {
    const Result<Value> value = evaluate(*statement.value);
    if (!value.ok()) return {value.status()};
    out_.text += value.value().text();
    return {};
  }

  // ---- Names ----

  Value lookup(std::string_view name) const {
    for (size_t i = scopes_.size(); i-- > base_;) {
      if (const Value* found = find(scopes_[i], name)) return *found;
    }
    // Macros see the template's own names too.
    if (base_ > 0) {
      if (const Value* found = find(scopes_[0], name)) return *found;
    }
    return {};
  }
  static const Value* find(const Dict& scope, std::string_view name) {
    for (const auto& [key, value] : scope) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  void assign(const std::string& name, Value value) {
    for (auto& [key, old] : scopes_.back()) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    scopes_.back().emplace_back(name, std::move(value));
  }

  Status unpack(const std::vector<std::string>& names, Value value) {
    if (names.size() == 1) {
      assign(names[0], std::move(value));
      return {};
    }
    INVAR_ASSIGN(const List items, items_of(value));
    if (items.size() != names.size()) {
      return template_error(cat(items.size(), " values for ", names.size(), " names"));
    }
    for (size_t i = 0; i < names.size(); ++i) assign(names[i], items[i]);
    return {};
  }

  // ---- Statements ----

  Status set(const Statement& statement) {
    Value value;
    if (statement.value != nullptr) {
      INVAR_ASSIGN(value, evaluate(*statement.value));
    } else {
      INVAR_ASSIGN(std::string body, captured(statement.body));
      value = Value(std::move(body));
      if (statement.condition != nullptr) {
        INVAR_ASSIGN(value, with_body(*statement.condition, value.string()));
      }
    }
    if (!statement.attribute) return unpack(statement.names, std::move(value));
    const Value target = lookup(statement.names[0]);
    if (!target.is_namespace()) {
      return template_error(
          cat("\"", statement.names[0], "\" is a ", target.type_name(), "; only fields of a namespace can be set"));
    }
    target.assign(statement.names[1], std::move(value));
    return {};
  }

  Ended loop(const Statement& statement) {
    Result<Value> over = evaluate(*statement.value);
    if (!over.ok()) return {over.status()};
    Result<List> all = items_of(over.value());
    if (!all.ok()) return {all.status()};
    scopes_.emplace_back();
    Ended ended = loop_over(statement, std::move(all).value());
    scopes_.pop_back();
    return ended;
  }

  Ended loop_over(const Statement& statement, List items) {
    if (statement.condition != nullptr) {
      List kept;
      for (Value& item : items) {
        if (Status status = unpack(statement.names, item); !status.ok()) return {status};
        const Result<Value> passes = evaluate(*statement.condition);
        if (!passes.ok()) return {passes.status()};
        if (passes.value().truthy()) kept.push_back(std::move(item));
      }
      items = std::move(kept);
    }
    if (items.empty()) return execute(statement.otherwise);
    const auto count = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < count; ++i) {
      if ((steps_ += kTurnSteps) > kMaxSteps) return {limit_error("takes too many steps")};
      scopes_.back().clear();  // what the last turn set is gone
      if (Status status = unpack(statement.names, items[static_cast<size_t>(i)]); !status.ok()) return {status};
      Dict loop;
      loop.emplace_back("index", Value(i + 1));
      loop.emplace_back("index0", Value(i));
      loop.emplace_back("revindex", Value(count - i));
      loop.emplace_back("revindex0", Value(count - i - 1));
      loop.emplace_back("first", Value(i == 0));
      loop.emplace_back("last", Value(i + 1 == count));
      loop.emplace_back("length", Value(count));
      loop.emplace_back("previtem", i > 0 ? items[static_cast<size_t>(i - 1)] : Value());
      loop.emplace_back("nextitem", i + 1 < count ? items[static_cast<size_t>(i + 1)] : Value());
      loop.emplace_back("cycle", Value::function([i](const Arguments& arguments) -> Result<Value> {
                          if (arguments.positional.empty()) return template_error("loop.cycle: nothing to choose from");
                          return arguments.positional[static_cast<size_t>(i) % arguments.positional.size()];
                        }));
      assign("loop", Value::dict(std::move(loop)));
      const Ended ended = execute(statement.body);
      if (!ended.status.ok()) return ended;
      if (ended.flow == Flow::kBreak) break;
    }
    return {};
  }

  Value macro(std::string name, const std::vector<Argument>& parameters, const Block& body) {
    return Value::function([this, name = std::move(name), &parameters, &body](const Arguments& given) {
      return call_macro(name, parameters, body, given);
    });
  }

  Result<Value> call_macro(const std::string& name, const std::vector<Argument>& parameters, const Block& body,
                           const Arguments& given) {
    if (++calls_ > kMaxCalls) {
      --calls_;
      return limit_error("calls too deep");
    }
    Dict scope;
    for (size_t i = 0; i < parameters.size(); ++i) {
      Value value = given.get(i, parameters[i].name);
      if (!given.has(i, parameters[i].name) && parameters[i].value != nullptr) {
        INVAR_ASSIGN(value, evaluate(*parameters[i].value));
      }
      scope.emplace_back(parameters[i].name, std::move(value));
    }
    if (given.has(SIZE_MAX, "caller")) scope.emplace_back("caller", given.get(SIZE_MAX, "caller"));
    const size_t base = base_;
    base_ = scopes_.size();
    scopes_.push_back(std::move(scope));
    Result<std::string> text = captured(body);
    scopes_.pop_back();
    base_ = base;
    --calls_;
    if (!text.ok()) return text.status().with_context(cat("macro ", name));
    return Value(std::move(text).value());
  }

  Status call_block(const Statement& statement) {
    INVAR_ASSIGN(const Value function, evaluate(*statement.value->children[0]));
    INVAR_ASSIGN(Arguments arguments, arguments_of(statement.value->arguments));
    arguments.named.emplace_back("caller", macro("caller", statement.arguments, statement.body));
    if (!function.is_function()) return template_error(cat("a ", function.type_name(), " cannot be called"));
    INVAR_ASSIGN(const Value value, function.callable()(arguments));
    out_.text += value.text();
    return {};
  }

  // What a block writes, kept from the output.
  Result<std::string> captured(const Block& block) {
    std::string outer = std::move(out_.text);
    out_.text.clear();
    ++capturing_;
    const Ended ended = execute(block);
    --capturing_;
    std::string inner = std::move(out_.text);
    out_.text = std::move(outer);
    if (!ended.status.ok()) return ended.status;
    return inner;
  }

  // A chain of filters whose innermost operand, a name without letters, stands for `body`.
  Result<Value> with_body(const Expression& filters, std::string body) {
    scopes_.emplace_back();
    assign("", Value(std::move(body)));
    Result<Value> value = evaluate(filters);
    scopes_.pop_back();
    return value;
  }

  // ---- Expressions ----

  Result<Value> evaluate(const Expression& e) {
    if (++steps_ > kMaxSteps) return limit_error("takes too many steps");
    switch (e.kind) {
      case ExpressionKind::kConstant: return e.constant;
      case ExpressionKind::kName: return lookup(e.name);
      case ExpressionKind::kList: {
        List items;
        for (const auto& child : e.children) {
          INVAR_ASSIGN(Value item, evaluate(*child));
          items.push_back(std::move(item));
        }
        return Value::list(std::move(items));
      }
      case ExpressionKind::kDict: return dict(e);
      case ExpressionKind::kUnary: return unary(e);
      case ExpressionKind::kBinary: return binary(e);
      case ExpressionKind::kCondition: {
        INVAR_ASSIGN(const Value condition, evaluate(*e.children[1]));
        if (condition.truthy()) return evaluate(*e.children[0]);
        return e.children[2] != nullptr ? evaluate(*e.children[2]) : Result<Value>(Value());
      }
      case ExpressionKind::kAttribute: {
        INVAR_ASSIGN(const Value object, evaluate(*e.children[0]));
        if (object.is_undefined()) {
          return template_error(cat("nothing is there to take \"", e.name, "\" of", described(*e.children[0])));
        }
        // A method, unless the dictionary has such a key only; as Jinja, attributes first.
        if (const Value method = bound_method(object, e.name); !method.is_undefined()) return method;
        return item_of(object, Value(e.name));
      }
      case ExpressionKind::kItem: {
        INVAR_ASSIGN(const Value object, evaluate(*e.children[0]));
        INVAR_ASSIGN(const Value key, evaluate(*e.children[1]));
        if (object.is_undefined()) {
          return template_error(cat("nothing is there to take an item of", described(*e.children[0])));
        }
        const Value found = item_of(object, key);
        // A key first, then an attribute.
        return found.is_undefined() && key.is_string() ? bound_method(object, key.string()) : found;
      }
      case ExpressionKind::kSlice: return slice(e);
      case ExpressionKind::kCall: {
        INVAR_ASSIGN(const Value function, evaluate(*e.children[0]));
        if (!function.is_function()) {
          return template_error(cat("a ", function.type_name(), " cannot be called", described(*e.children[0])));
        }
        INVAR_ASSIGN(const Arguments arguments, arguments_of(e.arguments));
        return function.callable()(arguments);
      }
      case ExpressionKind::kFilter: {
        INVAR_ASSIGN(const Value input, evaluate(*e.children[0]));
        INVAR_ASSIGN(const Arguments arguments, arguments_of(e.arguments));
        return apply_filter(e.name, input, arguments);
      }
      case ExpressionKind::kTest: {
        INVAR_ASSIGN(const Value input, evaluate(*e.children[0]));
        INVAR_ASSIGN(const Arguments arguments, arguments_of(e.arguments));
        INVAR_ASSIGN(const bool passed, apply_test(e.name, input, arguments));
        return Value(passed);
      }
    }
    return Value();
  }

  static std::string described(const Expression& e) {
    return e.kind == ExpressionKind::kName || e.kind == ExpressionKind::kAttribute ? cat(": \"", e.name, "\"")
                                                                                   : std::string();
  }

  Result<Arguments> arguments_of(const std::vector<Argument>& list) {
    Arguments arguments;
    for (const Argument& argument : list) {
      INVAR_ASSIGN(Value value, evaluate(*argument.value));
      if (argument.name.empty()) {
        arguments.positional.push_back(std::move(value));
      } else {
        arguments.named.emplace_back(argument.name, std::move(value));
      }
    }
    return arguments;
  }

  Result<Value> dict(const Expression& e) {
    Dict entries;
    for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
      INVAR_ASSIGN(const Value key, evaluate(*e.children[i]));
      INVAR_ASSIGN(Value value, evaluate(*e.children[i + 1]));
      const auto same =
          std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.first == key.text(); });
      if (same != entries.end()) {
        same->second = std::move(value);
      } else {
        entries.emplace_back(key.text(), std::move(value));
      }
    }
    return Value::dict(std::move(entries));
  }

  Result<Value> unary(const Expression& e) {
    INVAR_ASSIGN(Value operand, evaluate(*e.children[0]));
    if (e.name == "not") return Value(!operand.truthy());
    if (!operand.is_number()) return template_error(cat("a ", operand.type_name(), " has no sign"));
    if (e.name == "+") return operand;
    return binary_operation("-", Value(int64_t{0}), operand);
  }

  Result<Value> binary(const Expression& e) {
    INVAR_ASSIGN(Value left, evaluate(*e.children[0]));
    if (e.name == "and") return left.truthy() ? evaluate(*e.children[1]) : Result<Value>(std::move(left));
    if (e.name == "or") return left.truthy() ? Result<Value>(std::move(left)) : evaluate(*e.children[1]);
    INVAR_ASSIGN(const Value right, evaluate(*e.children[1]));
    return binary_operation(e.name, left, right);
  }

  Result<Value> slice(const Expression& e) {
    INVAR_ASSIGN(const Value object, evaluate(*e.children[0]));
    if (!object.is_list() && !object.is_string()) {
      return template_error(cat("a ", object.type_name(), " cannot be cut into slices"));
    }
    INVAR_ASSIGN(const List items, items_of(object));
    const auto size = static_cast<int64_t>(items.size());
    int64_t bounds[3] = {0, 0, 1};
    bool given[3] = {};
    for (size_t i = 0; i < 3; ++i) {
      if (e.children[i + 1] == nullptr) continue;
      INVAR_ASSIGN(const Value bound, evaluate(*e.children[i + 1]));
      if (bound.is_none()) continue;
      if (!bound.is_integer()) return template_error(cat("a ", bound.type_name(), " is no place in a list"));
      bounds[i] = bound.integer();
      given[i] = true;
    }
    const int64_t step = bounds[2];
    if (step == 0) return template_error("a slice with step 0");
    const auto place = [&](int64_t bound) {
      if (bound < 0) bound = std::max(bound + size, int64_t{-1});
      return step > 0 ? std::clamp<int64_t>(bound, 0, size) : std::clamp<int64_t>(bound, -1, size - 1);
    };
    const int64_t begin = given[0] ? place(bounds[0]) : step > 0 ? 0 : size - 1;
    const int64_t end = given[1] ? place(bounds[1]) : step > 0 ? size : -1;
    List out;
    for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
      out.push_back(items[static_cast<size_t>(i)]);
      if (step > size || -step > size) break;
    }
    if (object.is_list()) return Value::list(std::move(out));
    std::string text;
    for (const Value& item : out) text += item.string();
    return Value(std::move(text));
  }

  std::vector<Dict> scopes_;
  size_t base_ = 0;  // the innermost macro's first scope
  Rendered out_;
  int64_t steps_ = 0;
  int calls_ = 0, capturing_ = 0;
};

}  // namespace

Result<Rendered> run_template(const Block& block, Dict globals) { return Interpreter(std::move(globals)).run(block); }

}  // namespace invar::chat
