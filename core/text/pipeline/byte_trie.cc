#include "core/text/pipeline/byte_trie.h"

#include <algorithm>

namespace invar {

ByteTrie ByteTrie::build(std::vector<std::pair<std::string, int32_t>> entries) {
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  ByteTrie trie;
  // Breadth first, so that the children of a node lie side by side.
  struct Open {
    size_t node, begin, end, depth;
  };
  std::vector<Open> level{{0, 0, entries.size(), 0}};
  for (size_t next = 0; next < level.size(); ++next) {
    const Open open = level[next];
    size_t begin = open.begin;
    while (begin < open.end && entries[begin].first.size() == open.depth) {
      if (open.depth > 0 && trie.nodes_[open.node].value < 0) trie.nodes_[open.node].value = entries[begin].second;
      ++begin;
    }
    trie.nodes_[open.node].first = static_cast<uint32_t>(trie.nodes_.size());
    while (begin < open.end) {
      const char label = entries[begin].first[open.depth];
      size_t end = begin;
      while (end < open.end && entries[end].first[open.depth] == label) ++end;
      level.push_back({trie.nodes_.size(), begin, end, open.depth + 1});
      trie.nodes_.push_back({0, -1, 0, static_cast<unsigned char>(label)});
      ++trie.nodes_[open.node].count;
      begin = end;
    }
  }
  const Node& root = trie.nodes_[0];
  for (size_t i = root.first, end = i + root.count; i < end; ++i) {
    trie.root_[trie.nodes_[i].label] = static_cast<uint32_t>(i);
  }
  return trie;
}

}  // namespace invar
