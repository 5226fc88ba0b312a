// The stack machine behind Pickle::read. Private to the pickle reader.
//
// Role: runs the opcodes of one pickle over a stack of value numbers. Invariant: every number on the stack, in the memo
// and in a list is a node that exists; the stack above a mark belongs to the construct that is being read.
// Thread rule: one thread, one use.
#pragma once

#include <string>
#include <vector>

#include "core/container/pickle.h"

namespace invar {

class PickleReader {
 public:
  explicit PickleReader(Pickle& pickle) : pickle_(pickle), bytes_(pickle.bytes_) {}
  Status run();

 private:
  using Node = Pickle::Node;

  Status step(uint8_t opcode, bool* done);
  Status step_number(uint8_t opcode);
  Status step_text(uint8_t opcode);
  Status step_container(uint8_t opcode);
  Status step_object(uint8_t opcode);

  Status bad(const std::string& what) const;
  Status unsupported(uint8_t opcode) const;
  Status need(uint64_t bytes) const;  // DATA_LOSS when the pickle ends before
  Result<uint64_t> number(int bytes);
  Result<std::string_view> line();
  Status push_text(PickleKind kind, uint64_t bytes);
  Status push_long(uint64_t bytes);
  Status collect(PickleKind kind, size_t from);  // the stack from here on becomes one value
  Status push_global(std::string_view module, std::string_view name);
  uint32_t add(const Node& node);
  Status pay(size_t bytes);  // counts memory; DATA_LOSS when the values outgrow the pickle
  uint32_t add_list(PickleKind kind, std::vector<uint32_t> items);
  Status push_list(PickleKind kind, std::vector<uint32_t> items);
  void push(const Node& node) { stack_.push_back(add(node)); }
  Result<uint32_t> pop();
  Result<size_t> pop_mark();  // the stack's size at the mark
  Status remember(uint64_t index);
  Status recall(uint64_t index);
  Status append(size_t from);     // the stack from here on goes to the list below
  Status set_items(size_t from);  // likewise, pairs to the dict below
  Status call(bool makes_object);
  Status build();
  const Node& node(uint32_t id) const { return pickle_.nodes_[id]; }

  Pickle& pickle_;
  const std::string& bytes_;
  size_t at_ = 0;
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
  size_t spent_ = 0;
};

}  // namespace invar
