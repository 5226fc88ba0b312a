// Token sequences of one length, cut out of a TokenBuffer: the training part and the held-out tail.
//
// Sequence s reads the tokens [s*L, s*L + L) and predicts [s*L + 1, s*L + L + 1): neighbours share one token. Of all
// (tokens - 1) / L sequences the last ceil(heldout_fraction * count) are held out: a tail, so that the split does not
// change with the seed and the text before it reads as it was written.
// Thread rule: const after construction; use from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/text/token_buffer.h"

namespace invar {

enum class Packing {
  kConcatenated,  // attention reads across documents inside a sequence
  kDocuments,     // it does not, and an end token predicts nothing
};

// Packed sequences ready for a model: `tokens` rows.
struct TokenBatch {
  std::vector<int32_t> ids;      // [tokens]
  std::vector<int32_t> targets;  // [tokens]; -1: no loss there
  std::vector<int32_t> offsets;  // attention spans: from 0 to tokens, rising
  int64_t sequences = 0;

  void clear();
  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

struct SequenceOptions {
  int64_t length = 512;
  Packing packing = Packing::kConcatenated;
  double heldout_fraction = 0;
};

class Sequences {
 public:
  // "text.sequence_too_long" when there is not one training sequence, or none left to hold out.
  static Result<Sequences> create(std::shared_ptr<const TokenBuffer> tokens, const SequenceOptions& options);

  int64_t length() const { return options_.length; }
  int64_t training() const { return training_; }
  int64_t heldout() const { return total_ - training_; }
  // Appends training sequence `index`, or held-out sequence `index`.
  void append_training(int64_t index, TokenBatch* batch) const { append_at(index * options_.length, batch); }
  void append_heldout(int64_t index, TokenBatch* batch) const {
    append_at((training_ + index) * options_.length, batch);
  }
  // Appends the sequence that starts at token `begin`; begin + length() must be below the number of tokens.
  void append_at(int64_t begin, TokenBatch* batch) const;
  int64_t tokens() const { return tokens_->size(); }

 private:
  Sequences(std::shared_ptr<const TokenBuffer> tokens, const SequenceOptions& options)
      : tokens_(std::move(tokens)), options_(options) {}

  std::shared_ptr<const TokenBuffer> tokens_;
  SequenceOptions options_;
  int64_t total_ = 0, training_ = 0;
};

}  // namespace invar
