// Token sequences out of a TokenBuffer: the training part and the held-out tail.
//
// Cut (kConcatenated, kDocuments): sequence s reads the tokens [s*L, s*L + L) and predicts [s*L + 1, s*L + L + 1):
// neighbours share one token. Of all (tokens - 1) / L sequences the last ceil(heldout_fraction * count) are held out: a
// tail, so that the split does not change with the seed and the text before it reads as it was written.
//
// Packed (kWhole): documents stay whole; each sequence holds some of them side by side, at most L tokens, none padded.
// Attention and positions begin anew with each. A document longer than L is treated by `truncation`. The last
// ceil(heldout_fraction * documents) documents are held out.
//
// Tokens that are not trained are predicted without loss. Thread rule: const after construction; use from any thread.
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
  kWhole,         // documents are never cut
};

enum class Truncation {
  kKeepStart,
  kKeepEnd,
  kDrop,    // left out
  kRefuse,  // "text.document_too_long"
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
  Truncation truncation = Truncation::kKeepStart;
};

class Sequences {
 public:
  // "text.sequence_too_long" when there is not one training sequence, or none left to hold out; "text.all_masked" when
  // packing leaves no trained token.
  static Result<Sequences> create(std::shared_ptr<const TokenBuffer> tokens, const SequenceOptions& options);

  int64_t length() const { return options_.length; }
  int64_t training() const { return training_; }
  int64_t heldout() const { return total_ - training_; }
  // Appends training sequence `index`, or held-out sequence `index`.
  void append_training(int64_t index, TokenBatch* batch) const { append(index, batch); }
  void append_heldout(int64_t index, TokenBatch* batch) const { append(training_ + index, batch); }
  // Appends the sequence that starts at token `begin` (not of packed ones); begin + length() must be below the number
  // of tokens.
  void append_at(int64_t begin, TokenBatch* batch) const;
  int64_t tokens() const { return tokens_->size(); }

  // What packing did; documents by their index.
  struct PackingCounts {
    int64_t truncated = 0, dropped = 0, masked = 0;  // masked: left out, no token of them is trained
    int64_t trained_tokens = 0;                      // predicted with loss in the training part
    std::vector<int64_t> masked_samples;             // the first few
  };
  const PackingCounts& counts() const { return counts_; }

 private:
  Sequences(std::shared_ptr<const TokenBuffer> tokens, const SequenceOptions& options)
      : tokens_(std::move(tokens)), options_(options) {}
  struct Span {
    int64_t begin, size;
  };
  void append(int64_t index, TokenBatch* batch) const;
  void append_span(const Span& span, TokenBatch* batch) const;
  Status pack();
  Result<Span> fit(int64_t document, Span span);
  void pack_spans(const std::vector<Span>& spans);

  std::shared_ptr<const TokenBuffer> tokens_;
  SequenceOptions options_;
  int64_t total_ = 0, training_ = 0;
  std::vector<Span> spans_;     // packed: of all sequences in order
  std::vector<size_t> firsts_;  // packed: the first span of each sequence, and the end
  PackingCounts counts_;
};

}  // namespace invar
