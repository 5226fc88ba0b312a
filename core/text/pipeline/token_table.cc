#include "core/text/pipeline/token_table.h"

#include <xxhash.h>

#include <bit>

namespace invar {

TokenTable::TokenTable(int32_t size) : entries_(static_cast<size_t>(size)) {}

void TokenTable::set(int32_t id, std::string_view token) {
  entries_[static_cast<size_t>(id)] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(token.size())};
  text_ += token;
}

void TokenTable::finish() {
  slots_.assign(std::bit_ceil(entries_.size() * 2 + 2), -1);
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < size(); ++id) {
    if (!has(id)) continue;
    const std::string_view token = token_of(id);
    size_t slot = XXH3_64bits(token.data(), token.size()) & mask;
    while (slots_[slot] >= 0 && token_of(slots_[slot]) != token) slot = (slot + 1) & mask;
    slots_[slot] = id;
  }
}

int32_t TokenTable::id_of(std::string_view token) const {
  if (slots_.empty()) return -1;
  const size_t mask = slots_.size() - 1;
  size_t slot = XXH3_64bits(token.data(), token.size()) & mask;
  while (slots_[slot] >= 0 && token_of(slots_[slot]) != token) slot = (slot + 1) & mask;
  return slots_[slot];
}

}  // namespace invar
