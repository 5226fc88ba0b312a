// Where a model's first weights come from: random numbers, or whatever a checkpoint reader makes of a folder.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

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
