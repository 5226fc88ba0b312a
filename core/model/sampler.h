// Picks the next token from logits: greedy, or at random with temperature, top-k and top-p.
//
// Invariant: the choice depends on the logits, the options and the number of draws so far, on nothing else.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/rng.h"
#include "core/base/status.h"

namespace invar {

struct SamplingOptions {
  double temperature = 0;  // 0: the most likely token (the first of equals)
  int64_t top_k = 0;       // only the k most likely; 0: all
  double top_p = 1;        // only the most likely whose probabilities sum to at least this (Holtzman et al. 2020)
  uint64_t seed = 0;

  Status validate() const;
};

class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options), rng_(options.seed) {}

  // A NaN logit is never chosen; FAILED_PRECONDITION ("generate.not_finite") when none is finite.
  Result<int32_t> pick(std::span<const float> logits);

 private:
  struct Candidate {
    double weight;  // logit, then unnormalised probability
    int32_t token;
  };
  SamplingOptions options_;
  Rng rng_;
  std::vector<Candidate> candidates_;
};

}  // namespace invar
