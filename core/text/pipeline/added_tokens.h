// Added tokens: texts that are one token wherever they stand, found before the text reaches the model.
//
// Those with normalized = false are looked for in the text as given, the others in what the normalizer makes of it.
// At each place the longest wins. Thread rule: const once made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/status.h"
#include "core/text/pipeline/byte_trie.h"
#include "core/text/pipeline/stages.h"

namespace invar {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the spaces before it
  bool rstrip = false;       // and those behind
};

// A stretch of text: a token's, or text between tokens (id -1).
struct TextStretch {
  TextRange range;
  int32_t id = -1;
};

class AddedTokens {
 public:
  // The "added_tokens" list of a tokenizer.json.
  static Result<std::vector<AddedToken>> parse(const Json& list);
  // normalizer: may be null.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  // Cuts `text`, which is as given, or normalized. Without `parse_special`, special tokens are text.
  std::vector<TextStretch> split(std::string_view text, bool normalized, bool parse_special) const;
  bool has_normalized() const { return !tries_[1].empty(); }

  const AddedToken* find(int32_t id) const;
  int32_t id_of(std::string_view content) const;
  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<int32_t, size_t> by_id_;
  ByteTrie tries_[2];  // [normalized]; values are indices of tokens_
};

}  // namespace invar
