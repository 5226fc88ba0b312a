// A tokenizer as a tokenizer.json describes it: added tokens, normalizer, pre-tokenizer, model, post-processor,
// decoder.
//
//   INVAR_ASSIGN(auto tokenizer, PipelineTokenizer::parse(text, {}));
//
// Equal to the Hugging Face tokenizers library on the stages it supports; anything else is refused by name. Text that
// is no UTF-8 is read with replacement characters. decode() gives bytes: an unfinished character stays as it is.
// Thread rule: use from any thread; calls share caches through a pool.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pipeline/added_tokens.h"
#include "core/text/pipeline/stages.h"
#include "core/text/tokenizer.h"

namespace invar {

// The parts of a tokenizer, each may be null but the model.
struct PipelineParts {
  std::vector<AddedToken> added;
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<Decoder> decoder;
  int64_t max_tokens = 0;  // the file's truncation; 0: none
  bool truncate_left = false;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  // files: what files() gives; among them tokenizer_config.json and special_tokens_map.json name begin, end and padding
  // token. "tokenizer.unsupported", "tokenizer.bad_file", "tokenizer.bad_regex".
  static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view tokenizer_json,
                                                        std::vector<TokenizerFile> files);
  static Result<std::shared_ptr<const Tokenizer>> create(PipelineParts parts, std::vector<TokenizerFile> files);

  int32_t vocab_size() const override { return vocab_size_; }
  int32_t bos_id() const override { return bos_; }
  int32_t eos_id() const override { return eos_; }
  int32_t pad_id() const override { return pad_; }
  void encode_to(std::string_view text, const EncodeOptions& options, std::vector<int32_t>* ids) const override;
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const override;
  std::vector<TokenizerFile> files() const override { return files_; }
  std::vector<int32_t> text_prefix() const override { return before_; }
  int32_t id_of(std::string_view token) const override;
  std::string token_of(int32_t id) const override;
  bool is_special(int32_t id) const override;

 private:
  PipelineTokenizer(PipelineParts parts, std::vector<TokenizerFile> files);
  void choose_special_tokens();
  void encode_stretch(std::string_view text, bool begins_input, const EncodeOptions& options, Scratch& scratch,
                      std::vector<int32_t>* ids) const;
  void encode_piece(std::string text, bool begins_input, Scratch& scratch, std::vector<int32_t>* ids) const;
  std::unique_ptr<Scratch> take_scratch() const;
  void give_scratch(std::unique_ptr<Scratch> scratch) const;

  PipelineParts parts_;
  AddedTokens added_;
  std::vector<TokenizerFile> files_;
  std::vector<int32_t> before_, after_;
  int32_t vocab_size_ = 0, bos_ = -1, eos_ = -1, pad_ = -1;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // guarded by mutex_
};

}  // namespace invar
