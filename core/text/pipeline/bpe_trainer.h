// Trains a byte-level byte-pair vocabulary: the pair that occurs most often becomes a token, again and again.
//
//   BpeTrainer trainer({.vocab_size = 8192, .special_tokens = {"<|endoftext|>"}});
//   trainer.feed(line); ...
//   INVAR_ASSIGN(const auto trained, trainer.learn({}));
//   const std::string file = trainer.tokenizer_json(trained);
//
// Invariant: the same text gives the merges of the Hugging Face trainer with a ByteLevel pre-tokenizer and its
// alphabet: words are cut alike, ties go to the smaller ids, and the order of the text does not matter. Thread rule:
// one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/status.h"
#include "core/text/pipeline/stages.h"

namespace invar {

struct BpeTrainerOptions {
  int64_t vocab_size = 8192;  // special tokens and the 256 bytes included
  int64_t min_frequency = 0;  // pairs that occur less often are not joined
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
};

class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTrainerOptions options);
  ~BpeTrainer();

  // Counts the words of `text`, valid UTF-8. Words do not reach from one call to the next.
  void feed(std::string_view text);

  struct Hooks {
    const CancelFlag* cancel = nullptr;
    std::function<void(int64_t tokens, int64_t total)> progress;
  };
  struct Trained {
    std::vector<std::string> tokens;  // by id, bytes as characters
    std::vector<std::pair<int32_t, int32_t>> merges;
  };
  // "tokenizer.vocab_size" when there is no room for bytes and special tokens.
  Result<Trained> learn(const Hooks& hooks) const;
  // The content of a tokenizer.json.
  std::string tokenizer_json(const Trained& trained) const;
  // A JSON string.
  static std::string quoted(std::string_view text);

 private:
  BpeTrainerOptions options_;
  std::unique_ptr<PreTokenizer> words_;
  Scratch scratch_;
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace invar
