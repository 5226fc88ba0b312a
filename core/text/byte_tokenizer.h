// One token a byte (id = byte value) and three special tokens: begin 256, end 257, padding 258.
//
// It needs no file and loses nothing. files() gives it as a byte-level BPE without merges, which the tokenizers and
// transformers packages load and which gives the same ids there.
#pragma once

#include <string>
#include <vector>

#include "core/text/tokenizer.h"

namespace invar {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr int32_t kBos = 256, kEos = 257, kPad = 258, kVocabSize = 259;

  int32_t vocab_size() const override { return kVocabSize; }
  int32_t bos_id() const override { return kBos; }
  int32_t eos_id() const override { return kEos; }
  int32_t pad_id() const override { return kPad; }

  void encode_to(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids) const override;
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::vector<TokenizerFile> files() const override;
  int32_t id_of(std::string_view token) const override;
  std::string token_of(int32_t id) const override;
  bool is_special(int32_t id) const override { return id >= kBos && id < kVocabSize; }

  // The content of tokenizer.json.
  static std::string tokenizer_json();
  // Ok when `text` is a tokenizer.json with exactly these tokens and ids; "tokenizer.unsupported" says why not.
  static Status recognise(std::string_view tokenizer_json);
};

}  // namespace invar
