// Ids of words already met: text repeats its words, and finding a word is cheaper than merging it again.
//
// A table of fixed size in which a new word takes the place of an older one, so memory stays bounded whatever the text.
// Invariant: find() gives what store() was given for the very same bytes. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace invar {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 31;
  static constexpr size_t kMaxIds = 7;

  // Appends the word's ids; false when it is not here.
  bool find(std::string_view word, std::vector<int32_t>* ids) {
    if (word.size() > kMaxBytes || word.empty()) return false;
    if (!slots_) slots_ = std::make_unique<Slot[]>(kSlots);
    Slot& slot = slots_[index_of(word)];
    if (slot.bytes != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) return false;
    ids->insert(ids->end(), slot.ids, slot.ids + slot.count);
    return true;
  }

  void store(std::string_view word, std::span<const int32_t> ids) {
    if (word.size() > kMaxBytes || word.empty() || ids.size() > kMaxIds || !slots_) return;
    Slot& slot = slots_[index_of(word)];
    slot.bytes = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(ids.size());
    std::memcpy(slot.word, word.data(), word.size());
    std::memcpy(slot.ids, ids.data(), ids.size() * sizeof(int32_t));
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 15;  // 2 MiB
  struct Slot {
    int32_t ids[kMaxIds];
    uint8_t bytes = 0, count = 0;
    char word[kMaxBytes + 3];
  };

  static size_t index_of(std::string_view word) {
    uint64_t hash = word.size() * 0x9E3779B97F4A7C15u;
    size_t i = 0;
    for (; i + 8 <= word.size(); i += 8) {
      uint64_t part;
      std::memcpy(&part, word.data() + i, 8);
      hash = (hash ^ part) * 0x9FB21C651E98DF25u;
      hash ^= hash >> 32;
    }
    uint64_t part = 0;
    std::memcpy(&part, word.data() + i, word.size() - i);
    hash = (hash ^ part) * 0x9FB21C651E98DF25u;
    return static_cast<size_t>(hash >> 49) & (kSlots - 1);
  }

  std::unique_ptr<Slot[]> slots_;
};

}  // namespace invar
