// A tokenizer out of a SentencePiece .model file: BPE or Unigram over normalised text.
//
//   INVAR_ASSIGN(auto tokenizer, SentencePieceTokenizer::parse(bytes, {{"tokenizer.model", bytes}}));
//
// Ids and texts are those of the sentencepiece library: its character map, its handling of spaces, user-defined symbols
// kept whole, byte fallback. Control tokens never come from text unless `parse_special` asks for them.
// Thread rule: use from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pipeline/byte_trie.h"
#include "core/text/pipeline/stages.h"
#include "core/text/tokenizer.h"

namespace invar {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // "tokenizer.bad_file" for bytes that are no model, "tokenizer.unsupported" names a model type that is not read.
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view bytes, std::vector<TokenizerFile> files);

  int32_t vocab_size() const override { return static_cast<int32_t>(kinds_.size()); }
  int32_t bos_id() const override { return bos_; }
  int32_t eos_id() const override { return eos_; }
  int32_t pad_id() const override { return pad_; }
  void encode_to(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids) const override;
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::vector<TokenizerFile> files() const override { return files_; }
  std::vector<int32_t> text_prefix() const override;
  int32_t id_of(std::string_view token) const override { return model_->id_of(token); }
  std::string token_of(int32_t id) const override { return std::string(model_->token_of(id)); }
  bool is_special(int32_t id) const override;

 private:
  enum class Kind : uint8_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  SentencePieceTokenizer() = default;
  // What stands between control tokens.
  void encode_stretch(std::string_view text, Scratch& scratch, std::vector<int32_t>* ids) const;
  std::string normalised(std::string_view text, Scratch& scratch) const;
  // The longest entry of `trie` that the text begins with: its bytes, 0 for none, and its id.
  static size_t match(const ByteTrie& trie, std::string_view text, int32_t* id);

  std::unique_ptr<TokenModel> model_;
  std::unique_ptr<Normalizer> characters_;
  std::vector<Kind> kinds_;
  std::vector<TokenizerFile> files_;
  ByteTrie user_defined_, controls_;
  std::string unknown_surface_;
  int32_t bos_ = -1, eos_ = -1, pad_ = -1;
  bool add_prefix_ = true, remove_extra_ = true, escape_ = true, suffix_ = false;
};

}  // namespace invar
