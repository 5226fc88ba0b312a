// Where a model's first weights come from: random numbers, or whatever a checkpoint reader makes of a folder.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/cancel.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"
#include "core/family/family.h"

namespace invar {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Elements [first, first + count) of parameter number `index` (of parameters_of(shape)), as FP32.
  virtual Status read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) = 0;
};

// Another source that can be stopped: each read looks at the flag first. Both outlive it; the flag may be null.
class CancellableWeights : public WeightSource {
 public:
  CancellableWeights(WeightSource& source, const CancelFlag* cancel) : source_(source), cancel_(cancel) {}
  Status read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) override {
    INVAR_TRY(check_cancel(cancel_));
    return source_.read(index, parameter, first, count, out);
  }

 private:
  WeightSource& source_;
  const CancelFlag* cancel_;
};

// N(0, deviation) for matrices, 1 for gains; a function of (seed, parameter number, element) alone.
class RandomWeights : public WeightSource {
 public:
  RandomWeights(uint64_t seed, std::shared_ptr<ThreadPool> pool, float deviation = 0.02f);
  Status read(size_t index, const ParameterSpec& parameter, int64_t first, int64_t count, float* out) override;

 private:
  uint64_t seed_;
  std::shared_ptr<ThreadPool> pool_;
  float deviation_;
};

}  // namespace invar
