// Tokens by id and ids by token: the vocabulary of a model, in two flat blocks of memory.
//
// Invariant: id_of(token_of(id)) == id for every id that has a token, unless two ids share one: then the later wins.
// Thread rule: const once filled.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace invar {

class TokenTable {
 public:
  // Room for ids below `size`.
  explicit TokenTable(int32_t size = 0);
  // id lies in [0, size()); an id is set once.
  void set(int32_t id, std::string_view token);
  // Builds the index; call once after the last set().
  void finish();

  int32_t size() const { return static_cast<int32_t>(entries_.size()); }
  int32_t id_of(std::string_view token) const;
  bool has(int32_t id) const { return id >= 0 && id < size() && entries_[static_cast<size_t>(id)].begin != kNone; }
  // Empty where there is none.
  std::string_view token_of(int32_t id) const {
    if (!has(id)) return {};
    const Entry& entry = entries_[static_cast<size_t>(id)];
    return std::string_view(text_).substr(entry.begin, entry.size);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint32_t begin = kNone, size = 0;
  };
  std::string text_;
  std::vector<Entry> entries_;
  std::vector<int32_t> slots_;  // open addressing; -1: free
};

}  // namespace invar
