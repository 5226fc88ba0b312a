// Sums gradients of micro-batches in FP32 for hosts that compute their own.
//
//   accumulator.begin();
//   for each micro-batch: accumulator.add(i, gradient_i, DType::kBF16) for every tensor; accumulator.add_tokens(n);
//   optimizer.step(lr, clip_factor(norm, 1) / accumulator.tokens());
//
// Invariant: a window's first contribution overwrites, the others add; a tensor without one reads as zero.
// The sum is FP32 whatever the micro-batches are stored in. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/device/device.h"

namespace invar {

class GradientAccumulator {
 public:
  // counts: elements of each tensor.
  static Result<GradientAccumulator> create(std::shared_ptr<Device> device, std::vector<int64_t> counts);

  // Starts a window.
  Status begin();
  // Adds a gradient of a sum of token losses: F32 or BF16, count elements.
  Status add(size_t index, const void* gradient, DType dtype);
  void add_tokens(int64_t tokens) { tokens_ += tokens; }

  size_t size() const { return counts_.size(); }
  int64_t tokens() const { return tokens_; }
  const float* sum(size_t index) const { return sums_.as<float>() + offsets_[index]; }
  // Over all tensors, FP64, in a fixed order; not finite when any element is not.
  Result<double> norm_squared() const;
  // The first tensor with a non-finite element, or -1.
  Result<int64_t> first_non_finite() const;

 private:
  GradientAccumulator() = default;
  std::shared_ptr<Device> device_;
  std::vector<int64_t> counts_, offsets_;
  DeviceBuffer sums_, scratch_;
  int64_t tokens_ = 0;
};

}  // namespace invar
