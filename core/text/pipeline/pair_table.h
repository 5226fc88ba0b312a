// Rank and result of each pair of symbols that byte-pair encoding joins. Thread rule: const once filled.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace invar {

class PairTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Entry {
    uint64_t key = UINT64_MAX;
    uint32_t rank = kNoRank;
    int32_t merged = -1;
  };

  void reserve(size_t pairs) {
    entries_.assign(std::bit_ceil(pairs * 3 / 2 + 2), Entry());
    mask_ = entries_.size() - 1;
  }
  // Of equal pairs the last counts.
  void set(int32_t left, int32_t right, uint32_t rank, int32_t merged) {
    const uint64_t key = key_of(left, right);
    size_t slot = slot_of(key);
    while (entries_[slot].key != key && entries_[slot].key != UINT64_MAX) slot = (slot + 1) & mask_;
    entries_[slot] = {key, rank, merged};
  }
  // An entry with rank kNoRank for a pair that is not joined.
  const Entry& find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    size_t slot = slot_of(key);
    while (entries_[slot].key != key && entries_[slot].key != UINT64_MAX) slot = (slot + 1) & mask_;
    return entries_[slot];
  }

 private:
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  size_t slot_of(uint64_t key) const {
    const uint64_t hash = (key ^ key >> 29) * 0x9FB21C651E98DF25u;
    return static_cast<size_t>(hash >> 32) & mask_;
  }
  std::vector<Entry> entries_ = std::vector<Entry>(2);
  size_t mask_ = 1;
};

}  // namespace invar
