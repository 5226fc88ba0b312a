#include "core/calibrate/comparison.h"

#include <algorithm>
#include <cmath>

namespace invar {
namespace {

// -log softmax(logits)[target], FP64.
double loss_of(const float* logits, int64_t count, int32_t target) {
  double largest = -INFINITY;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<double>(logits[i]));
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(static_cast<double>(logits[i]) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[target]);
}

MicroBatch view(const TokenBatch& batch) {
  return {.ids = batch.ids, .targets = batch.targets, .offsets = batch.offsets, .positions = {}};
}

template <typename Value>
double mean(const std::vector<TokenResult>& results, Value value) {
  double sum = 0;
  for (const TokenResult& result : results) sum += value(result);
  return results.empty() ? 0 : sum / static_cast<double>(results.size());
}

template <typename Visit>
Status for_batches(const CalibrationTokens& tokens, int64_t at_once, const CancelFlag* cancel, Visit visit) {
  TokenBatch batch;
  for (int64_t first = 0; first < tokens.sequences(); first += at_once) {
    INVAR_TRY(check_cancel(cancel));
    batch.clear();
    for (int64_t i = first; i < std::min(tokens.sequences(), first + at_once); ++i) tokens.append(i, &batch);
    INVAR_TRY(visit(batch));
  }
  return {};
}

}  // namespace

double Comparison::source_loss() const {
  return mean(results, [](const TokenResult& r) { return r.source_loss; });
}

double Comparison::destination_loss() const {
  return mean(results, [](const TokenResult& r) { return r.destination_loss; });
}

double Comparison::difference_standard_error() const {
  if (tokens() < 2) return INFINITY;
  const double center = destination_loss() - source_loss();
  const double squares = mean(results, [center](const TokenResult& r) {
    const double away = r.destination_loss - r.source_loss - center;
    return away * away;
  });
  return std::sqrt(squares / static_cast<double>(tokens() - 1));
}

double Comparison::kl_mean() const {
  return mean(results, [](const TokenResult& r) { return r.kl; });
}

double Comparison::kl_quantile(double share) const {
  if (results.empty()) return 0;
  std::vector<double> sorted;
  for (const TokenResult& result : results) sorted.push_back(result.kl);
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

double Comparison::top1_agreement() const {
  return mean(results, [](const TokenResult& r) { return r.same_top1 ? 1.0 : 0.0; });
}

Result<Comparison> compare(Model& source, Model& destination, const CalibrationTokens& tokens, int64_t at_once,
                           ThreadPool& pool, const CancelFlag* cancel, Progress* progress) {
  const int64_t vocab = source.shape().vocab, hidden = source.shape().hidden, layers = source.shape().layers;
  Comparison comparison;
  comparison.layers.resize(static_cast<size_t>(layers));
  std::vector<float> source_logits, destination_logits, streams;
  INVAR_TRY(for_batches(tokens, at_once, cancel, [&](const TokenBatch& batch) -> Status {
    const int64_t rows = batch.tokens(), stream_size = rows * hidden;
    source_logits.resize(static_cast<size_t>(rows * vocab));
    destination_logits.resize(source_logits.size());
    streams.resize(static_cast<size_t>(layers * stream_size));
    INVAR_TRY(source.logits(view(batch), source_logits.data(), [&](int64_t layer, const float* stream) -> Status {
      std::copy(stream, stream + stream_size, streams.data() + layer * stream_size);
      return check_cancel(cancel);
    }));
    progress->advance(rows);
    INVAR_TRY(
        destination.logits(view(batch), destination_logits.data(), [&](int64_t layer, const float* stream) -> Status {
          comparison.layers[static_cast<size_t>(layer)].add(streams.data() + layer * stream_size, stream, stream_size);
          return check_cancel(cancel);
        }));
    progress->advance(rows);
    std::vector<TokenResult> of_row(static_cast<size_t>(rows));
    pool.parallel_for(rows, [&](int64_t row, int) {
      const int32_t target = batch.targets[static_cast<size_t>(row)];
      if (target < 0) return;
      const float* p = source_logits.data() + row * vocab;
      const float* q = destination_logits.data() + row * vocab;
      of_row[static_cast<size_t>(row)] = {.source_loss = loss_of(p, vocab, target),
                                          .destination_loss = loss_of(q, vocab, target),
                                          .kl = kl_divergence(p, q, vocab),
                                          .same_top1 = arg_max(p, vocab) == arg_max(q, vocab)};
    });
    for (int64_t row = 0; row < rows; ++row) {
      if (batch.targets[static_cast<size_t>(row)] >= 0) comparison.results.push_back(of_row[static_cast<size_t>(row)]);
    }
    return {};
  }));
  if (comparison.results.empty()) {
    return Error(Code::kInvalidArgument, "text.empty", "no token of the text has a loss");
  }
  return comparison;
}

Result<std::vector<float>> token_losses(Model& model, const CalibrationTokens& tokens, int64_t at_once,
                                        const CancelFlag* cancel, Progress* progress) {
  std::vector<float> losses;
  INVAR_TRY(for_batches(tokens, at_once, cancel, [&](const TokenBatch& batch) -> Status {
    const size_t before = losses.size();
    losses.resize(before + batch.ids.size());
    INVAR_ASSIGN(const LossSum sum, model.evaluate(view(batch), {.loss = losses.data() + before}));
    (void)sum;
    progress->advance(batch.tokens());
    return {};
  }));
  return losses;
}

double mean_of(const std::vector<float>& token_losses, const CalibrationTokens& tokens) {
  double sum = 0;
  int64_t count = 0;
  TokenBatch batch;
  size_t at = 0;
  for (int64_t i = 0; i < tokens.sequences(); ++i) {
    batch.clear();
    tokens.append(i, &batch);
    for (const int32_t target : batch.targets) {
      if (target >= 0) sum += static_cast<double>(token_losses[at]), ++count;
      ++at;
    }
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace invar
