// Two models on the same tokens: paired token losses, KL divergence of their predictions, error after each layer.
// Thread rule: functions; a model belongs to one call at a time.
#pragma once

#include <functional>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/calibrate/tokens.h"
#include "core/model/model.h"
#include "core/numerics/error_stats.h"

namespace invar {

struct Progress {
  std::function<void(int64_t done, int64_t total)> report;
  int64_t done = 0, total = 0;

  void advance(int64_t tokens) {
    done += tokens;
    if (report) report(done, total);
  }
};

// What one token with a target gave.
struct TokenResult {
  double source_loss = 0, destination_loss = 0;  // nats
  double kl = 0;                                 // KL(source || destination), nats
  bool same_top1 = false;
};

struct Comparison {
  std::vector<TokenResult> results;  // in token order
  std::vector<ErrorStats> layers;    // of the residual stream after each layer, destination against source

  int64_t tokens() const { return static_cast<int64_t>(results.size()); }
  double source_loss() const;
  double destination_loss() const;
  // Of the mean of the paired differences of token losses.
  double difference_standard_error() const;
  double kl_mean() const;
  double kl_quantile(double share) const;  // 1: the largest
  double top1_agreement() const;
};

// Deterministic at any thread count: a token is one task, sums run in token order.
Result<Comparison> compare(Model& source, Model& destination, const CalibrationTokens& tokens, int64_t at_once,
                           ThreadPool& pool, const CancelFlag* cancel, Progress* progress);

// Token losses alone, 0 where there is no target.
Result<std::vector<float>> token_losses(Model& model, const CalibrationTokens& tokens, int64_t at_once,
                                        const CancelFlag* cancel, Progress* progress);
double mean_of(const std::vector<float>& token_losses, const CalibrationTokens& tokens);

}  // namespace invar
