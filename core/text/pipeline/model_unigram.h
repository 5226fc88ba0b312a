// Unigram (Kudo 2018, "Subword regularization"): the cut of a piece into tokens with the highest sum of log
// probabilities, found by Viterbi's algorithm.
//
// Characters that no token begins with count as the unknown token at a low score; neighbours of that kind are one, or
// become byte tokens where the file asks for it. Thread rule: const once made.
#pragma once

#include <memory>
#include <vector>

#include "core/text/pipeline/byte_trie.h"
#include "core/text/pipeline/stages.h"
#include "core/text/pipeline/token_table.h"

namespace invar {

class UnigramModel final : public TokenModel {
 public:
  // scores: one for each id. in_text: whether a token may come from text; empty: all may. unknown: -1 for none.
  UnigramModel(TokenTable tokens, std::vector<double> scores, const std::vector<bool>& in_text, int32_t unknown,
               bool byte_fallback);

  int32_t size() const override { return tokens_.size(); }
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const override;
  int32_t id_of(std::string_view token) const override { return tokens_.id_of(token); }
  std::string_view token_of(int32_t id) const override { return tokens_.token_of(id); }

 private:
  void find_path(std::string_view piece, std::vector<PathStep>* path) const;
  void append_unknown(std::string_view text, std::vector<int32_t>* ids) const;

  TokenTable tokens_;
  std::vector<double> scores_;
  ByteTrie trie_;
  int32_t unknown_;
  double unknown_score_;
  bool byte_fallback_;
  int32_t byte_ids_[256];
};

Result<std::unique_ptr<TokenModel>> make_unigram_model(const Json& json);

}  // namespace invar
