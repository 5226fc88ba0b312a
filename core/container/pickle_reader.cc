#include "core/container/pickle_reader.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "core/container/pickle_names.h"
#include "core/container/tensor_info.h"

namespace invar {
namespace {

constexpr uint32_t kUnset = std::numeric_limits<uint32_t>::max();
constexpr size_t kFreeBytes = 16 << 20, kBytesForEach = 24;

// -1 when the name is not allowed.
int64_t allowed_index(std::string_view module, std::string_view name) {
  const bool cuda_storage = module == "torch.cuda" && name.ends_with("Storage");  // files of old versions
  if (cuda_storage) module = "torch";
  for (size_t i = 0; i < kAllowed.size(); ++i) {
    const std::string_view full = kAllowed[i].name;
    if (full.size() == module.size() + name.size() + 1 && full.starts_with(module) && full[module.size()] == '.' &&
        full.ends_with(name)) {
      return static_cast<int64_t>(i);
    }
  }
  return -1;
}

}  // namespace

Status PickleReader::run() {
  pickle_.nodes_.push_back({});  // None
  for (bool done = false; !done;) {
    if (at_ >= bytes_.size()) return need(1);
    INVAR_TRY(step(static_cast<uint8_t>(bytes_[at_++]), &done));
  }
  if (stack_.size() != 1 || !marks_.empty()) return bad(cat("ends with ", stack_.size(), " values; one is expected"));
  pickle_.root_ = stack_[0];
  pickle_.consumed_ = at_;
  return {};
}

Status PickleReader::step(uint8_t opcode, bool* done) {
  switch (opcode) {
    case '.': *done = true; return {};
    case 0x80: {  // PROTO
      INVAR_ASSIGN(const uint64_t protocol, number(1));
      if (protocol < 2 || protocol > 5) return bad(cat("has protocol ", protocol, "; 2 to 5 can be read"));
      return {};
    }
    case 0x95: {  // FRAME
      INVAR_ASSIGN(const uint64_t bytes, number(8));
      return need(bytes);
    }
    case 'N': stack_.push_back(0); return {};
    case '0': return pop().status();
    case '1': {  // POP_MARK
      INVAR_ASSIGN(const size_t from, pop_mark());
      stack_.resize(from);
      return {};
    }
    case 'K':
    case 'M':
    case 'J':
    case 'G':
    case 0x88:
    case 0x89:
    case 0x8a:
    case 0x8b: return step_number(opcode);
    case 'X':
    case 'T':
    case 'U':
    case 'B':
    case 'C':
    case 0x8c:
    case 0x8d:
    case 0x8e:
    case 0x96: return step_text(opcode);
    case '(':
    case ')':
    case ']':
    case '}':
    case 't':
    case 'a':
    case 'e':
    case 's':
    case 'u':
    case 0x85:
    case 0x86:
    case 0x87:
    case 0x8f:
    case 0x90: return step_container(opcode);
    default: return step_object(opcode);
  }
}

Status PickleReader::step_number(uint8_t opcode) {
  INVAR_TRY(pay(sizeof(Node)));
  switch (opcode) {
    case 'K':
    case 'M': {  // BININT1, BININT2
      INVAR_ASSIGN(const uint64_t value, number(opcode == 'K' ? 1 : 2));
      push({PickleKind::kInt, 0, static_cast<int64_t>(value)});
      return {};
    }
    case 'J': {  // BININT
      INVAR_ASSIGN(const uint64_t value, number(4));
      push({PickleKind::kInt, 0, static_cast<int32_t>(static_cast<uint32_t>(value))});
      return {};
    }
    case 'G': {  // BINFLOAT, big-endian
      INVAR_ASSIGN(const uint64_t value, number(8));
      push({PickleKind::kFloat, 0, static_cast<int64_t>(__builtin_bswap64(value))});
      return {};
    }
    case 0x8a: {  // LONG1
      INVAR_ASSIGN(const uint64_t bytes, number(1));
      return push_long(bytes);
    }
    case 0x8b: {  // LONG4
      INVAR_ASSIGN(const uint64_t bytes, number(4));
      return push_long(bytes);
    }
    default: push({PickleKind::kBool, 0, opcode == 0x88}); return {};
  }
}

Status PickleReader::step_text(uint8_t opcode) {
  INVAR_TRY(pay(sizeof(Node)));
  const bool is_text = opcode == 'X' || opcode == 'T' || opcode == 'U' || opcode == 0x8c || opcode == 0x8d;
  const bool is_short = opcode == 'U' || opcode == 'C' || opcode == 0x8c;
  const bool is_long = opcode == 0x8d || opcode == 0x8e || opcode == 0x96;
  INVAR_ASSIGN(const uint64_t bytes, number(is_short ? 1 : is_long ? 8 : 4));
  return push_text(is_text ? PickleKind::kText : PickleKind::kBytes, bytes);
}

Status PickleReader::step_container(uint8_t opcode) {
  switch (opcode) {
    case '(':
      INVAR_TRY(pay(sizeof(size_t)));
      marks_.push_back(stack_.size());
      return {};
    case ')': return push_list(PickleKind::kTuple, {});
    case ']':
    case 0x8f: return push_list(PickleKind::kList, {});
    case '}': return push_list(PickleKind::kDict, {});
    case 't': {
      INVAR_ASSIGN(const size_t from, pop_mark());
      return collect(PickleKind::kTuple, from);
    }
    case 'e':
    case 0x90: {
      INVAR_ASSIGN(const size_t from, pop_mark());
      return append(from);
    }
    case 'u': {
      INVAR_ASSIGN(const size_t from, pop_mark());
      return set_items(from);
    }
    default: {
      const size_t items = opcode == 'a' ? 1 : opcode == 's' ? 2 : opcode - 0x84u;
      if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < items) return bad("takes a value from an empty stack");
      const size_t from = stack_.size() - items;
      return opcode == 'a' ? append(from) : opcode == 's' ? set_items(from) : collect(PickleKind::kTuple, from);
    }
  }
}

Status PickleReader::step_object(uint8_t opcode) {
  switch (opcode) {
    case 'h':
    case 'j':
    case 'q':
    case 'r': {
      INVAR_ASSIGN(const uint64_t index, number(opcode == 'h' || opcode == 'q' ? 1 : 4));
      return opcode == 'h' || opcode == 'j' ? recall(index) : remember(index);
    }
    case 0x94: return remember(memo_.size());
    case 'c':
    case 'i': {  // GLOBAL, INST
      INVAR_ASSIGN(const std::string_view module, line());
      INVAR_ASSIGN(const std::string_view name, line());
      INVAR_TRY(push_global(module, name));
      return opcode == 'c' ? Status() : unsupported(opcode);
    }
    case 0x93: {  // STACK_GLOBAL
      INVAR_ASSIGN(const uint32_t name, pop());
      INVAR_ASSIGN(const uint32_t module, pop());
      const PickleValue m(&pickle_, module), n(&pickle_, name);
      if (!m.is(PickleKind::kText) || !n.is(PickleKind::kText)) return bad("imports something that is no name");
      return push_global(m.text(), n.text());
    }
    case 'R': return call(false);
    case 0x81: return call(true);
    case 'b': return build();
    case 'Q': {
      INVAR_ASSIGN(const uint32_t id, pop());
      return push_list(PickleKind::kPersistent, {id});
    }
    default: return unsupported(opcode);
  }
}

Status PickleReader::bad(const std::string& what) const {
  return Error(Code::kDataLoss, "pickle.bad", cat(pickle_.label_, ": the pickle ", what, " (at byte ", at_, ")"));
}

Status PickleReader::unsupported(uint8_t opcode) const {
  constexpr char kHex[] = "0123456789abcdef";
  const std::string name = opcode > 0x20 && opcode < 0x7f ? cat("'", static_cast<char>(opcode), "'")
                                                          : cat("0x", kHex[opcode >> 4], kHex[opcode & 15]);
  const bool registry = opcode >= 0x82 && opcode <= 0x84;
  return Error(Code::kDataLoss, "pickle.unsupported_opcode",
               cat(pickle_.label_, ": the pickle holds the opcode ", name, " at byte ", at_ - 1,
                   registry ? ", which imports through Python's extension registry" : "",
                   ", which no checkpoint needs; it was not run"));
}

Status PickleReader::need(uint64_t bytes) const {
  if (bytes <= bytes_.size() - at_) return {};
  return Error(Code::kDataLoss, "pickle.truncated",
               cat(pickle_.label_, ": the pickle ends at byte ", bytes_.size(), " but needs ", bytes,
                   " more from byte ", at_, ": file is truncated"));
}

Status PickleReader::pay(size_t bytes) {
  spent_ += bytes;
  if (spent_ <= kFreeBytes + kBytesForEach * bytes_.size()) return {};
  return bad("describes far more values than its size suggests");
}

Result<uint64_t> PickleReader::number(int bytes) {
  INVAR_TRY(need(static_cast<uint64_t>(bytes)));
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(bytes_[at_++])} << (8 * i);
  return value;
}

Result<std::string_view> PickleReader::line() {
  constexpr size_t kLongest = 1000;
  const std::string_view rest = std::string_view(bytes_).substr(at_, kLongest);
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) return bad("imports a name without an end");
  at_ += end + 1;
  return rest.substr(0, end);
}

Status PickleReader::push_text(PickleKind kind, uint64_t bytes) {
  INVAR_TRY(need(bytes));
  if (bytes > std::numeric_limits<uint32_t>::max()) return bad("holds a text of more than 4 GiB");
  push({kind, static_cast<uint32_t>(bytes), static_cast<int64_t>(at_)});
  at_ += bytes;
  return {};
}

Status PickleReader::push_long(uint64_t bytes) {
  if (bytes > 8) return push_text(PickleKind::kBytes, bytes);
  INVAR_ASSIGN(uint64_t value, number(static_cast<int>(bytes)));
  if (bytes > 0 && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0) value |= ~uint64_t{0} << (8 * bytes);
  push({PickleKind::kInt, 0, static_cast<int64_t>(value)});
  return {};
}

Status PickleReader::push_global(std::string_view module, std::string_view name) {
  const int64_t index = allowed_index(module, name);
  if (index < 0) {
    return Error(Code::kDataLoss, "pickle.unsafe_global",
                 cat(pickle_.label_, ": the pickle imports ", in_quotes(cat(module, ".", name)),
                     ", which is not on the list of names that checkpoints need; nothing of it was run"));
  }
  INVAR_TRY(pay(sizeof(Node)));
  push({PickleKind::kGlobal, 0, index});
  return {};
}

uint32_t PickleReader::add(const Node& node) {
  pickle_.nodes_.push_back(node);
  return static_cast<uint32_t>(pickle_.nodes_.size() - 1);
}

uint32_t PickleReader::add_list(PickleKind kind, std::vector<uint32_t> items) {
  pickle_.lists_.push_back(std::move(items));
  return add({kind, static_cast<uint32_t>(pickle_.lists_.size() - 1), 0});
}

Status PickleReader::push_list(PickleKind kind, std::vector<uint32_t> items) {
  INVAR_TRY(pay(sizeof(Node) + sizeof(items) + 2 * sizeof(uint32_t) * items.size()));
  stack_.push_back(add_list(kind, std::move(items)));
  return {};
}

Result<uint32_t> PickleReader::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) return bad("takes a value from an empty stack");
  const uint32_t id = stack_.back();
  stack_.pop_back();
  return id;
}

Result<size_t> PickleReader::pop_mark() {
  if (marks_.empty()) return bad("closes a list that was not begun");
  const size_t from = marks_.back();
  marks_.pop_back();
  return from;
}

// Picklers number the memo without gaps, so that no index is above the bytes read.
Status PickleReader::remember(uint64_t index) {
  if (stack_.empty()) return bad("remembers a value of an empty stack");
  if (index > at_) return bad(cat("remembers a value under the number ", index));
  if (memo_.size() <= index) memo_.resize(static_cast<size_t>(index) + 1, kUnset);
  memo_[static_cast<size_t>(index)] = stack_.back();
  return pay(2 * sizeof(uint32_t));
}

Status PickleReader::recall(uint64_t index) {
  if (index >= memo_.size() || memo_[static_cast<size_t>(index)] == kUnset) {
    return bad(cat("asks for the value number ", index, ", which was not remembered"));
  }
  INVAR_TRY(pay(2 * sizeof(uint32_t)));
  stack_.push_back(memo_[static_cast<size_t>(index)]);
  return {};
}

Status PickleReader::collect(PickleKind kind, size_t from) {
  std::vector<uint32_t> items(stack_.begin() + static_cast<int64_t>(from), stack_.end());
  stack_.resize(from);
  return push_list(kind, std::move(items));
}

Status PickleReader::append(size_t from) {
  if (from == 0 || from > stack_.size()) return bad("adds to a list that is not there");
  const Node& list = node(stack_[from - 1]);
  if (list.kind != PickleKind::kList) return bad("adds items to something that is no list");
  INVAR_TRY(pay(2 * sizeof(uint32_t) * (stack_.size() - from)));
  auto& items = pickle_.lists_[list.extra];
  items.insert(items.end(), stack_.begin() + static_cast<int64_t>(from), stack_.end());
  stack_.resize(from);
  return {};
}

Status PickleReader::set_items(size_t from) {
  if (from == 0 || from > stack_.size()) return bad("adds to a dict that is not there");
  const Node& dict = node(stack_[from - 1]);
  if (dict.kind != PickleKind::kDict) return bad("adds entries to something that is no dict");
  if ((stack_.size() - from) % 2 != 0) return bad("adds a key without a value");
  INVAR_TRY(pay(2 * sizeof(uint32_t) * (stack_.size() - from)));
  auto& items = pickle_.lists_[dict.extra];
  items.insert(items.end(), stack_.begin() + static_cast<int64_t>(from), stack_.end());
  stack_.resize(from);
  return {};
}

Status PickleReader::call(bool makes_object) {
  INVAR_ASSIGN(const uint32_t arguments, pop());
  INVAR_ASSIGN(const uint32_t callee, pop());
  if (node(callee).kind != PickleKind::kGlobal) return bad("calls something that is no function");
  if (node(arguments).kind != PickleKind::kTuple) return bad("calls a function with something that is no tuple");
  const PickleValue given(&pickle_, arguments);
  const PickleName meaning = kAllowed[static_cast<size_t>(node(callee).number)].meaning;
  if (meaning == PickleName::kData) {
    if (makes_object) return push_list(PickleKind::kObject, {callee, arguments, 0});
    return push_list(PickleKind::kCall, {callee, arguments});
  }
  const PickleValue first = given.size() > 0 ? given.item(0) : PickleValue(&pickle_, 0);
  if (meaning == PickleName::kTuple) {
    if (first.is(PickleKind::kTuple)) {
      stack_.push_back(first.id_);
      return {};
    }
    return push_list(PickleKind::kTuple, {});
  }
  std::vector<uint32_t> items;
  if (meaning == PickleName::kListClass) {
    for (size_t i = 0; i < first.size(); ++i) items.push_back(first.item(i).id_);
    return push_list(PickleKind::kList, std::move(items));
  }
  if (first.is(PickleKind::kList)) {  // pairs
    for (size_t i = 0; i < first.size(); ++i) {
      if (first.item(i).size() != 2) return bad("makes a dict of something that is no list of pairs");
      items.push_back(first.item(i).item(0).id_);
      items.push_back(first.item(i).item(1).id_);
    }
  }
  return push_list(PickleKind::kDict, std::move(items));
}

// State of a dict (OrderedDict's attributes) or of a call's result does not matter here.
Status PickleReader::build() {
  INVAR_ASSIGN(const uint32_t state, pop());
  if (stack_.empty()) return bad("sets the state of a value of an empty stack");
  const Node& target = node(stack_.back());
  if (target.kind == PickleKind::kObject) {
    pickle_.lists_[target.extra][2] = state;
    return {};
  }
  if (target.kind == PickleKind::kDict || target.kind == PickleKind::kCall) return {};
  return bad("sets the state of a value that has none");
}

}  // namespace invar
