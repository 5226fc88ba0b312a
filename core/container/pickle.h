// A Python pickle read as data: numbers, texts, containers, and calls that are written down and never made.
//
//   INVAR_ASSIGN(const Pickle pickle, Pickle::read("model.bin", bytes, {}));
//   for (size_t i = 0; i < pickle.root().size(); ++i) ... pickle.root().key(i), pickle.root().value(i)
//
// A pickle is a program for a stack machine that may import any function and call it. Here an import only looks its
// name up in a list of names that occur in checkpoints (kAllowed in pickle.cc) and every other name ends the reading
// with pickle.unsafe_global, which names it. Nothing of the name is ever loaded or run; a call becomes a Call value
// that holds its arguments. Opcodes that no checkpoint needs are refused by their name.
//
// Memory: values may cost 16 MiB and 24 times the pickle's bytes (honest ones need about 10 times), or it is refused.
// reasons, all with DATA_LOSS: pickle.unsafe_global  pickle.unsupported_opcode  pickle.truncated  pickle.bad
// Thread rule: a value that owns its bytes; PickleValue points into it and must not outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace invar {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,    // str
  kBytes,   // also integers that do not fit 64 bits, as their little-endian bytes
  kTuple,   // also torch.Size
  kList,    // also sets
  kDict,    // keys and values alternate
  kGlobal,  // the name of a class or function, "torch.float32"
  kCall,    // a function and its arguments; the result is not known
  kObject,  // an instance: class, arguments, state (a dict or none)
  kPersistent,
};

class Pickle;

// A value in a Pickle. Cheap to copy. Accessors of another kind give an empty answer, never a failure, so that
// checking can be left to the end.
class PickleValue {
 public:
  PickleKind kind() const;
  bool is(PickleKind kind) const { return this->kind() == kind; }
  std::optional<int64_t> integer() const;  // kInt, kBool
  std::string_view text() const;           // kText, kBytes; the name of a kGlobal
  size_t size() const;                     // items of a tuple or list, entries of a dict, 0 otherwise
  PickleValue item(size_t i) const;        // of a tuple or list
  PickleValue key(size_t i) const;         // of a dict, in the order of the file
  PickleValue value(size_t i) const;
  // The dict's last entry with this text as key; None when there is none. Of an object: of its state, when that has at
  // most 64 entries. Takes time in the size of the dict: make a map for many look-ups.
  PickleValue find(std::string_view key) const;
  // Of a call or object: the name of the function or class; the arguments (a tuple); of an object its state.
  // Of a persistent reference: arguments() is what identifies it.
  std::string_view callee() const;
  PickleValue arguments() const;
  PickleValue state() const;
  // A list or tuple of at most 64 integers that are not negative (torch.Size, strides); nothing otherwise.
  std::optional<std::vector<int64_t>> sizes() const;
  bool operator==(const PickleValue&) const = default;

 private:
  friend class Pickle;
  friend class PickleReader;
  PickleValue(const Pickle* pickle, uint32_t id) : pickle_(pickle), id_(id) {}
  const Pickle* pickle_;
  uint32_t id_;
};

class Pickle {
 public:
  // Reads one pickle from the front of `bytes`. `label` names it in messages.
  static Result<Pickle> read(std::string label, std::string bytes);

  Pickle(Pickle&&) = default;
  Pickle& operator=(Pickle&&) = default;

  PickleValue root() const { return {this, root_}; }
  size_t consumed() const { return consumed_; }  // bytes up to and with the closing opcode
  size_t values() const { return nodes_.size(); }
  const std::string& label() const { return label_; }
  std::vector<PickleValue> persistent() const;  // every reference to something outside, in the order of the file

 private:
  friend class PickleValue;
  friend class PickleReader;
  struct Node {
    PickleKind kind = PickleKind::kNone;
    uint32_t extra = 0;  // bytes of a text, index into lists_ of a container
    int64_t number = 0;  // an integer, the bits of a float, where a text begins, which name of the allow list
  };
  Pickle() = default;

  std::string label_, bytes_;
  std::vector<Node> nodes_;  // node 0 is None
  std::vector<std::vector<uint32_t>> lists_;
  uint32_t root_ = 0;
  size_t consumed_ = 0;
};

}  // namespace invar
