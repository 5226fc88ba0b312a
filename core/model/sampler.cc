#include "core/model/sampler.h"

#include <algorithm>
#include <cmath>

namespace invar {

Status SamplingOptions::validate() const {
  const auto refuse = [](std::string message) {
    return Error(Code::kInvalidArgument, "generate.options", std::move(message));
  };
  if (!(temperature >= 0) || !std::isfinite(temperature)) {
    return refuse(cat("temperature is ", temperature, ": expected a number from 0"));
  }
  if (top_k < 0) return refuse(cat("top_k is ", top_k, ": expected 0 (all) or more"));
  if (!(top_p > 0 && top_p <= 1)) return refuse(cat("top_p is ", top_p, ": expected above 0, at most 1"));
  return {};
}

Result<int32_t> Sampler::pick(std::span<const float> logits) {
  candidates_.clear();
  if (options_.temperature == 0) {
    Candidate best{-INFINITY, -1};
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isfinite(logits[i]) && logits[i] > best.weight) best = {logits[i], static_cast<int32_t>(i)};
    }
    if (best.token >= 0) return best.token;
  } else {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (std::isfinite(logits[i])) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
    }
  }
  if (candidates_.empty()) {
    return Error(Code::kFailedPrecondition, "generate.not_finite", "no logit is finite: the weights are broken");
  }
  // Most likely first, equals by token, so that the order never depends on the sort.
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  };
  if (options_.top_k > 0 && options_.top_k < static_cast<int64_t>(candidates_.size())) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k - 1, candidates_.end(), before);
    candidates_.resize(static_cast<size_t>(options_.top_k));
  }
  double largest = -INFINITY, total = 0;
  for (const Candidate& candidate : candidates_) largest = std::max(largest, candidate.weight);
  // Probabilities are summed in a fixed order: sorted when something was cut, by token otherwise.
  if (options_.top_k > 0 || options_.top_p < 1) std::sort(candidates_.begin(), candidates_.end(), before);
  for (Candidate& candidate : candidates_) {
    candidate.weight = std::exp((candidate.weight - largest) / options_.temperature);
    total += candidate.weight;
  }
  if (options_.top_p < 1) {
    double kept = 0;
    size_t count = 0;
    while (count < candidates_.size() && (count == 0 || kept < options_.top_p * total)) {
      kept += candidates_[count++].weight;
    }
    candidates_.resize(count);
    total = kept;
  }
  double draw = rng_.next_unit() * total;
  for (const Candidate& candidate : candidates_) {
    draw -= candidate.weight;
    if (draw < 0) return candidate.token;
  }
  return candidates_.back().token;
}

}  // namespace invar
