// Byte-pair encoding (Sennrich et al. 2016): symbols of a piece are joined pair by pair, lowest rank first, leftmost
// among equals.
//
// Two forms: over bytes, for vocabularies of ByteLevel tokenizers (their characters are read back to bytes once, here),
// and over characters, with byte fallback ("<0x0A>") or an unknown token for those outside the vocabulary.
// Thread rule: const once made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/text/pipeline/pair_table.h"
#include "core/text/pipeline/stages.h"
#include "core/text/pipeline/token_table.h"

namespace invar {

struct BpeOptions {
  bool reads_bytes = false;
  bool byte_fallback = false;
  bool fuse_unknown = false;   // neighbours without a token become one unknown token
  bool ignore_merges = false;  // a piece that is a token is that token
  int32_t unknown = -1;
};

class BpeModel final : public TokenModel {
 public:
  // merges: pairs of ids and the id they become, in the order of rank.
  struct Merge {
    int32_t left, right, merged;
  };
  BpeModel(TokenTable tokens, const std::vector<Merge>& merges, const BpeOptions& options);

  int32_t size() const override { return tokens_.size(); }
  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>* ids) const override;
  int32_t id_of(std::string_view token) const override { return tokens_.id_of(token); }
  std::string_view token_of(int32_t id) const override { return tokens_.token_of(id); }

 private:
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>* ids) const;
  void symbols_of(std::string_view word, std::vector<int32_t>* symbols) const;
  int32_t id_of_character(std::string_view character, uint32_t code_point) const;
  void find_word_starts();

  TokenTable tokens_;
  BpeOptions options_;
  PairTable pairs_;
  TokenTable bytes_to_ids_;  // reads_bytes and ignore_merges: tokens as bytes
  int32_t byte_ids_[256];
  std::vector<int32_t> character_ids_;  // below U+10000
  // Whether a piece may be cut before a space mark: no token holds the mark behind any other character than these.
  bool cuts_words_ = false;
  std::vector<bool> joins_mark_;  // by code point
};

Result<std::unique_ptr<TokenModel>> make_bpe_model(const Json& json, bool reads_bytes);

}  // namespace invar
