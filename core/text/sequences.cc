#include "core/text/sequences.h"

#include <algorithm>
#include <cmath>

namespace invar {

void TokenBatch::clear() {
  ids.clear();
  targets.clear();
  offsets.clear();
  sequences = 0;
}

Result<Sequences> Sequences::create(std::shared_ptr<const TokenBuffer> tokens, const SequenceOptions& options) {
  if (options.length < 1 || !(options.heldout_fraction >= 0) || options.heldout_fraction >= 1) {
    return Error(Code::kInvalidArgument, "text.bad_options",
                 cat("sequence length ", options.length, ", held-out share ", options.heldout_fraction,
                     ": expected at least 1 and [0, 1)"));
  }
  Sequences sequences(std::move(tokens), options);
  const int64_t available = sequences.tokens_->size();
  sequences.total_ = (available - 1) / options.length;
  const auto held = static_cast<int64_t>(std::ceil(options.heldout_fraction * static_cast<double>(sequences.total_)));
  sequences.training_ = sequences.total_ - held;
  if (sequences.training_ < 1) {
    return Error(Code::kInvalidArgument, "text.sequence_too_long",
                 cat("the text has ", available, " tokens, which is ", sequences.total_, " sequences of ",
                     options.length, " and one token; one to train on",
                     options.heldout_fraction > 0 ? " and one to hold out are needed" : " is needed",
                     ": add text or lower the sequence length"));
  }
  return sequences;
}

void Sequences::append_at(int64_t begin, TokenBatch* batch) const {
  const int64_t length = options_.length;
  const auto base = batch->tokens();
  batch->ids.resize(static_cast<size_t>(base + length));
  batch->targets.resize(static_cast<size_t>(base + length));
  const auto ids = std::span(batch->ids).subspan(static_cast<size_t>(base));
  const auto targets = std::span(batch->targets).subspan(static_cast<size_t>(base));
  tokens_->copy(begin, ids);
  tokens_->copy(begin + 1, targets);
  if (batch->offsets.empty()) batch->offsets.push_back(0);
  if (options_.packing == Packing::kDocuments) {
    const auto& starts = tokens_->document_starts();
    // Document starts inside (begin, begin + length]: the token before one closes its document.
    for (auto it = std::upper_bound(starts.begin(), starts.end(), begin); it != starts.end() && *it <= begin + length;
         ++it) {
      targets[static_cast<size_t>(*it - begin - 1)] = -1;
      if (*it < begin + length) batch->offsets.push_back(static_cast<int32_t>(base + *it - begin));
    }
  }
  batch->offsets.push_back(static_cast<int32_t>(base + length));
  ++batch->sequences;
}

}  // namespace invar
