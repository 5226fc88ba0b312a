#include "core/text/sequences.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

constexpr size_t kOpenSequences = 64;  // that a document may still join
constexpr size_t kNamedSamples = 8;

}  // namespace

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
  if (options.packing == Packing::kWhole) {
    INVAR_TRY(sequences.pack());
    return sequences;
  }
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

// The part of a document that fits; size 0 when it is left out.
Result<Sequences::Span> Sequences::fit(int64_t document, Span span) {
  if (span.size > options_.length) {
    switch (options_.truncation) {
      case Truncation::kKeepStart: span.size = options_.length; break;
      case Truncation::kKeepEnd:
        span.begin += span.size - options_.length;
        span.size = options_.length;
        break;
      case Truncation::kDrop: ++counts_.dropped; return Span{span.begin, 0};
      case Truncation::kRefuse:
        return Error(Code::kInvalidArgument, "text.document_too_long",
                     cat("document ", document, " has ", span.size, " tokens, a sequence ", options_.length,
                         "; raise data.sequence_length or choose another data.truncation"));
    }
    ++counts_.truncated;
  }
  int64_t trained = 0;
  for (int64_t i = span.begin + 1; i < span.begin + span.size; ++i) trained += tokens_->trained(i) ? 1 : 0;
  if (trained == 0) {
    ++counts_.masked;
    if (counts_.masked_samples.size() < kNamedSamples) counts_.masked_samples.push_back(document);
    return Span{span.begin, 0};
  }
  counts_.trained_tokens += trained;
  return span;
}

Status Sequences::pack() {
  const auto& starts = tokens_->document_starts();
  const auto documents = static_cast<int64_t>(starts.size());
  const auto held = static_cast<int64_t>(std::ceil(options_.heldout_fraction * static_cast<double>(documents)));
  std::vector<Span> training, heldout;
  for (int64_t i = 0; i < documents; ++i) {
    const auto place = static_cast<size_t>(i);
    const int64_t end = i + 1 < documents ? starts[place + 1] : tokens_->size();
    const int64_t before = counts_.trained_tokens;
    INVAR_ASSIGN(const Span span, fit(i, {starts[place], end - starts[place]}));
    const bool trains = i < documents - held;
    if (!trains) counts_.trained_tokens = before;
    if (span.size > 0) (trains ? training : heldout).push_back(span);
  }
  if (training.empty() && counts_.masked > 0) {
    return Error(
        Code::kDataLoss, "text.all_masked",
        cat("no sample has a trained token inside ", options_.length, " tokens: ", counts_.masked, " are masked, ",
            counts_.dropped, " too long; raise data.sequence_length or change data.truncation"));
  }
  if (training.empty() || (held > 0 && heldout.empty())) {
    return Error(Code::kInvalidArgument, "text.sequence_too_long",
                 cat(documents, " documents, ", counts_.dropped, " of them longer than ", options_.length,
                     " tokens and dropped; one to train on",
                     options_.heldout_fraction > 0 ? " and one to hold out are needed" : " is needed"));
  }
  firsts_.push_back(0);
  pack_spans(training);
  training_ = static_cast<int64_t>(firsts_.size()) - 1;
  pack_spans(heldout);
  total_ = static_cast<int64_t>(firsts_.size()) - 1;
  return {};
}

// Each document joins the fullest of the open sequences that has room for it; when there are too many, the fullest is
// closed. Documents stay near the order in which they were read.
void Sequences::pack_spans(const std::vector<Span>& spans) {
  struct Open {
    int64_t used = 0;
    std::vector<Span> spans;
  };
  std::vector<Open> open;
  const auto close = [&](size_t i) {
    spans_.insert(spans_.end(), open[i].spans.begin(), open[i].spans.end());
    firsts_.push_back(spans_.size());
    open.erase(open.begin() + static_cast<ptrdiff_t>(i));
  };
  const auto fullest = [&](int64_t most) {
    size_t best = open.size();
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].used <= most && (best == open.size() || open[i].used > open[best].used)) best = i;
    }
    return best;
  };
  for (const Span& span : spans) {
    size_t at = fullest(options_.length - span.size);
    if (at == open.size()) {
      if (open.size() == kOpenSequences) close(fullest(options_.length));
      at = open.size();
      open.emplace_back();
    }
    open[at].used += span.size;
    open[at].spans.push_back(span);
    if (open[at].used == options_.length) close(at);
  }
  while (!open.empty()) close(0);
}

void Sequences::append(int64_t index, TokenBatch* batch) const {
  if (firsts_.empty()) {
    append_at(index * options_.length, batch);
    return;
  }
  const auto place = static_cast<size_t>(index);
  if (batch->offsets.empty()) batch->offsets.push_back(0);
  for (size_t i = firsts_[place]; i < firsts_[place + 1]; ++i) append_span(spans_[i], batch);
  ++batch->sequences;
}

void Sequences::append_span(const Span& span, TokenBatch* batch) const {
  const auto base = static_cast<size_t>(batch->tokens());
  const auto size = static_cast<size_t>(span.size);
  batch->ids.resize(base + size);
  batch->targets.resize(base + size, -1);
  tokens_->copy(span.begin, std::span(batch->ids).subspan(base));
  for (size_t i = 0; i + 1 < size; ++i) {
    const bool trained = tokens_->trained(span.begin + static_cast<int64_t>(i) + 1);
    batch->targets[base + i] = trained ? batch->ids[base + i + 1] : -1;
  }
  batch->offsets.push_back(static_cast<int32_t>(base + size));
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
  if (!tokens_->all_trained()) {
    for (int64_t i = 0; i < length; ++i) {
      if (!tokens_->trained(begin + 1 + i)) targets[static_cast<size_t>(i)] = -1;
    }
  }
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
