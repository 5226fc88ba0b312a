// JSON form: snake_case names, enums by short name, 64-bit integers as numbers, NaN and infinities as strings.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/config/tree.h"

namespace invar::config {

namespace {

constexpr size_t kDeepest = 32;

// Feeds the parser's events into the tree. The parser itself keeps no recursion, and this stack is bounded.
class Reader : public nlohmann::json::json_sax_t {
 public:
  Reader(Node& root, std::string path) : root_(&root), root_path_(std::move(path)) {}

  Status take_status() { return std::move(status_); }

  bool null() override {
    if (!scalar_place("null")) return false;
    if (stack_.back().kind == Frame::kMessage) return true;  // absent
    return wrong("null");
  }
  bool boolean(bool value) override { return scalar(value ? "true" : "false", Literal::kBool); }
  bool number_integer(number_integer_t value) override { return scalar(std::to_string(value), Literal::kNumber); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(std::to_string(value), Literal::kNumber); }
  bool number_float(number_float_t value, const string_t& text) override {
    // The parser gives integers beyond 64 bits as doubles too; the text says what was meant.
    return scalar(text.empty() ? number_text(value) : text, Literal::kNumber);
  }
  bool string(string_t& value) override { return scalar(value, Literal::kString); }
  bool binary(binary_t&) override { return wrong("binary"); }

  bool start_object(size_t) override {
    if (stack_.empty()) {
      if (started_) return wrong("an object");
      started_ = true;
      stack_.push_back({Frame::kMessage, root_, nullptr, root_path_, {}, {}});
      return true;
    }
    if (stack_.size() >= kDeepest) return fail("config.too_deep", cat(path(), ": nested deeper than ", kDeepest));
    Frame& top = stack_.back();
    const Field* field = top.field;
    if (field == nullptr || top.kind == Frame::kMap) return wrong("an object");
    const bool element = top.kind == Frame::kList;
    if (field->repeated && !element) return wrong("an object");
    if (field->kind == Kind::kMap) {
      stack_.push_back({Frame::kMap, top.node, field, path(), {}, {}});
      return true;
    }
    if (field->kind != Kind::kMessage) return wrong("an object");
    auto& values = top.node->of(*field);
    values.emplace_back();
    values.back().node = std::make_unique<Node>(*field->message);
    stack_.push_back({Frame::kMessage, values.back().node.get(), nullptr, path(), {}, {}});
    return true;
  }
  bool end_object() override {
    stack_.pop_back();
    return true;
  }
  bool start_array(size_t) override {
    if (stack_.empty()) return wrong("a list");
    Frame& top = stack_.back();
    if (top.kind != Frame::kMessage || !top.field->repeated) return wrong("a list");
    stack_.push_back({Frame::kList, top.node, top.field, path(), {}, {}});
    return true;
  }
  bool end_array() override {
    stack_.pop_back();
    return true;
  }

  bool key(string_t& name) override {
    Frame& top = stack_.back();
    if (!top.seen.insert(name).second) {
      return fail("config.duplicate_field", cat(join_key(top.path, name), ": given twice"));
    }
    top.last = name;
    if (top.kind == Frame::kMap) return true;
    top.field = top.node->type->find(name);
    if (top.field == nullptr) {
      std::vector<std::string_view> names;
      for (const Field& field : top.node->type->fields) names.push_back(field.name);
      return fail("config.unknown_field", cat(join_key(top.path, name), ": unknown field of ",
                                              top.node->type->short_name(), suggestion(name, names)));
    }
    top.node->of(*top.field).clear();
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 4: ...": the bracket is the parser's own.
    const size_t bracket = what.find("] ");
    if (bracket != std::string::npos) what.erase(0, bracket + 2);
    return fail("config.syntax", cat("json, byte ", position, ": ", what));
  }

 private:
  enum class Literal { kBool, kNumber, kString };
  struct Frame {
    enum Type { kMessage, kList, kMap } kind;
    Node* node;
    const Field* field;  // kMessage: of the last key
    std::string path;
    std::set<std::string> seen;
    std::string last;
  };

  bool fail(std::string_view reason, std::string message) {
    if (status_.ok()) status_ = Error(Code::kInvalidArgument, reason, std::move(message));
    return false;
  }
  std::string path() const {
    if (stack_.empty()) return root_path_;
    const Frame& top = stack_.back();
    if (top.kind == Frame::kMap) return join_key(top.path, top.last);
    if (top.kind == Frame::kList) return cat(top.path, "[", top.node->of(*top.field).size(), "]");
    return join_key(top.path, top.field->name);
  }
  bool wrong(std::string_view got) {
    if (stack_.empty()) return fail("config.wrong_type", cat("json: expected an object, got ", got));
    const Frame& top = stack_.back();
    const std::string expected =
        top.kind == Frame::kMap ? "a string" : expectation(*top.field, top.kind == Frame::kList);
    return fail("config.wrong_type", cat(path(), ": expected ", expected, ", got ", got));
  }
  bool scalar_place(std::string_view got) { return stack_.empty() ? wrong(got) : true; }

  bool scalar(const std::string& text, Literal literal) {
    const char* names[] = {"a boolean", "a number", "a string"};
    if (!scalar_place(names[static_cast<int>(literal)])) return false;
    Frame& top = stack_.back();
    if (top.kind == Frame::kMap) {
      if (literal != Literal::kString) return wrong(names[static_cast<int>(literal)]);
      Value value;
      value.key = top.last;
      value.text = text;
      top.node->of(*top.field).push_back(std::move(value));
      return true;
    }
    const Field& field = *top.field;
    const bool misplaced =
        (field.repeated && top.kind == Frame::kMessage) || field.kind == Kind::kMessage || field.kind == Kind::kMap;
    // Strings may hold numbers ("NaN", "256MiB", 64-bit integers of other writers), not the other way round.
    const bool literal_fits = field.kind == Kind::kBool     ? literal == Literal::kBool
                              : field.kind == Kind::kString ? literal == Literal::kString
                                                            : literal != Literal::kBool;
    if (misplaced || !literal_fits) return wrong(names[static_cast<int>(literal)]);
    auto value = parse_scalar(field, text, path());
    if (!value.ok()) {
      status_ = value.status();
      return false;
    }
    top.node->of(field).push_back(std::move(value).value());
    return true;
  }

  Node* root_;
  std::string root_path_;
  bool started_ = false;
  std::vector<Frame> stack_;
  Status status_;
};

class Writer {
 public:
  explicit Writer(bool pretty) : pretty_(pretty) {}

  void node(const Node& node) {
    open('{');
    for (const Field& field : node.type->fields) {
      const auto& values = node.of(field);
      if (values.empty()) continue;
      item(field.name);
      if (field.kind == Kind::kMap) {
        map(values);
      } else if (field.repeated) {
        open('[');
        for (const Value& value : values) {
          item({});
          element(field, value);
        }
        close(']');
      } else {
        element(field, values.front());
      }
    }
    close('}');
  }
  std::string take() { return std::move(out_); }

 private:
  void element(const Field& field, const Value& value) {
    if (field.kind == Kind::kMessage) return node(*value.node);
    const std::string text = scalar_text(field, value);
    const bool known = field.kind == Kind::kEnum && !text.empty() &&
                       !std::isdigit(static_cast<unsigned char>(text[0])) && text[0] != '-';
    const bool quoted =
        field.kind == Kind::kString || known || (field.kind == Kind::kDouble && !std::isfinite(value.as_double()));
    out_ += quoted ? json_string(text) : text;
  }
  void map(const std::vector<Value>& values) {
    std::vector<const Value*> entries;
    for (const Value& value : values) entries.push_back(&value);
    std::sort(entries.begin(), entries.end(), [](const Value* a, const Value* b) { return a->key < b->key; });
    open('{');
    for (const Value* value : entries) {
      item(value->key);
      out_ += json_string(value->text);
    }
    close('}');
  }
  void open(char bracket) {
    out_ += bracket;
    ++depth_;
    empty_ = true;
  }
  void close(char bracket) {
    --depth_;
    if (!empty_) line();
    out_ += bracket;
    empty_ = false;
  }
  void item(std::string_view key) {
    if (!empty_) out_ += ',';
    empty_ = false;
    line();
    if (key.data() == nullptr) return;
    out_ += json_string(key);
    out_ += pretty_ ? ": " : ":";
  }
  void line() {
    if (!pretty_) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(2 * depth_), ' ');
  }

  bool pretty_;
  bool empty_ = true;
  int depth_ = 0;
  std::string out_;
};

}  // namespace

Status merge_json(Node& node, const std::string& path, std::string_view text) {
  Reader reader(node, path);
  // Comments are allowed: people keep notes in configs.
  const bool done =
      nlohmann::json::sax_parse(text.begin(), text.end(), &reader, nlohmann::json::input_format_t::json, true, true);
  Status status = reader.take_status();
  if (status.ok() && !done) status = Error(Code::kInvalidArgument, "config.syntax", "json: cannot be read");
  return status;
}

Result<Node> from_json(const MessageType& type, std::string_view text) {
  Node node(type);
  INVAR_TRY(merge_json(node, "", text));
  return node;
}

std::string to_json(const Node& node, bool pretty) {
  Writer writer(pretty);
  writer.node(node);
  return writer.take();
}

std::string json_string(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[c >> 4];
          out += kHex[c & 15];
        } else {
          out += c;
        }
    }
  }
  return out + '"';
}

}  // namespace invar::config
