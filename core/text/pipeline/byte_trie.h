// Byte strings with a number each, found by walking their bytes: all strings that a text begins with, in one pass.
//
//   size_t node = 0;
//   while (at < text.size() && (node = trie.child(node, text[at++])) != 0) { if (trie.value(node) >= 0) ... }
//
// Thread rule: const once built.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace invar {

class ByteTrie {
 public:
  // Values are not negative; of equal keys the first counts. Empty keys are left out.
  static ByteTrie build(std::vector<std::pair<std::string, int32_t>> entries);

  bool empty() const { return nodes_.size() <= 1; }
  // The node behind `byte`, 0 for none; 0 is also the root, which is no one's child.
  size_t child(size_t node, char byte) const {
    const auto label = static_cast<unsigned char>(byte);
    if (node == 0) return root_[label];
    const Node& parent = nodes_[node];
    for (size_t i = parent.first, end = i + parent.count; i < end; ++i) {
      if (nodes_[i].label == label) return i;
    }
    return 0;
  }
  // -1 where no key ends.
  int32_t value(size_t node) const { return nodes_[node].value; }
  bool begins_with(char byte) const { return root_[static_cast<unsigned char>(byte)] != 0; }

 private:
  struct Node {
    uint32_t first = 0;  // child
    int32_t value = -1;
    uint16_t count = 0;
    unsigned char label = 0;
  };
  std::vector<Node> nodes_ = std::vector<Node>(1);
  uint32_t root_[256] = {};
};

}  // namespace invar
