#include "core/text/pipeline/merge_symbols.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace invar {
namespace {

constexpr size_t kShort = 48;

void merge_short(const PairTable& pairs, std::vector<int32_t>* symbols) {
  std::array<uint32_t, kShort> ranks;  // of symbol i and the next
  std::array<int32_t, kShort> merged;
  int32_t* ids = symbols->data();
  size_t count = symbols->size();
  const auto look_up = [&](size_t i) {
    const PairTable::Entry& entry = pairs.find(ids[i], ids[i + 1]);
    ranks[i] = entry.rank;
    merged[i] = entry.merged;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) best = ranks[i] < ranks[best] ? i : best;
    if (ranks[best] == PairTable::kNoRank) break;
    ids[best] = merged[best];
    const size_t rest = count - best - 2;  // symbols behind the pair
    std::memmove(ids + best + 1, ids + best + 2, rest * sizeof(int32_t));
    if (rest > 0) {
      std::memmove(&ranks[best], &ranks[best + 1], rest * sizeof(uint32_t));
      std::memmove(&merged[best], &merged[best + 1], rest * sizeof(int32_t));
      look_up(best);
    }
    --count;
    if (best > 0) look_up(best - 1);
  }
  symbols->resize(count);
}

// A heap of pairs; symbols are linked, and an entry whose pair has changed since is passed over.
void merge_long(const PairTable& pairs, std::vector<int32_t>* symbols) {
  struct Link {
    uint32_t before, next, rank;
    int32_t merged;
  };
  std::vector<int32_t>& ids = *symbols;
  const auto count = static_cast<uint32_t>(ids.size());
  constexpr uint32_t kEnd = UINT32_MAX;
  std::vector<Link> links(count);
  std::vector<uint64_t> heap;  // rank, then place
  heap.reserve(count);
  const auto above = [](uint64_t a, uint64_t b) { return a > b; };
  const auto look_up = [&](uint32_t i) {
    links[i].rank = PairTable::kNoRank;
    if (links[i].next == kEnd) return false;
    const PairTable::Entry& entry = pairs.find(ids[i], ids[links[i].next]);
    links[i].rank = entry.rank;
    links[i].merged = entry.merged;
    if (entry.rank == PairTable::kNoRank) return false;
    heap.push_back(uint64_t{entry.rank} << 32 | i);
    return true;
  };
  for (uint32_t i = 0; i < count; ++i) {
    links[i].before = i == 0 ? kEnd : i - 1;
    links[i].next = i + 1 == count ? kEnd : i + 1;
  }
  for (uint32_t i = 0; i < count; ++i) look_up(i);
  std::make_heap(heap.begin(), heap.end(), above);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), above);
    const auto rank = static_cast<uint32_t>(heap.back() >> 32);
    const auto at = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    if (links[at].rank != rank) continue;
    ids[at] = links[at].merged;
    const uint32_t gone = links[at].next;
    links[gone].rank = PairTable::kNoRank;
    links[at].next = links[gone].next;
    if (links[at].next != kEnd) links[links[at].next].before = at;
    if (look_up(at)) std::push_heap(heap.begin(), heap.end(), above);
    if (links[at].before != kEnd && look_up(links[at].before)) std::push_heap(heap.begin(), heap.end(), above);
  }
  size_t out = 0;
  for (uint32_t i = 0; i != kEnd; i = links[i].next) ids[out++] = ids[i];
  ids.resize(out);
}

}  // namespace

void merge_symbols(const PairTable& pairs, std::vector<int32_t>* symbols) {
  if (symbols->size() < 2) return;
  if (symbols->size() <= kShort) {
    merge_short(pairs, symbols);
  } else {
    merge_long(pairs, symbols);
  }
}

}  // namespace invar
