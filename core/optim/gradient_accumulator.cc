#include "core/optim/gradient_accumulator.h"

#include <algorithm>

namespace invar {

Result<GradientAccumulator> GradientAccumulator::create(std::shared_ptr<Device> device, std::vector<int64_t> counts) {
  GradientAccumulator accumulator;
  int64_t elements = 0, largest = 1;
  for (const int64_t count : counts) {
    if (count < 0)
      return Error(Code::kInvalidArgument, "optimizer.bad_parameter", cat("a tensor of ", count, " elements"));
    accumulator.offsets_.push_back(elements);
    elements += (count + 15) / 16 * 16;  // 64 bytes
    largest = std::max(largest, count);
  }
  INVAR_ASSIGN(accumulator.sums_, device->allocate(std::max<size_t>(static_cast<size_t>(elements), 1) * sizeof(float)));
  INVAR_ASSIGN(accumulator.scratch_, device->allocate(static_cast<size_t>(largest) * sizeof(float)));
  accumulator.device_ = std::move(device);
  accumulator.counts_ = std::move(counts);
  INVAR_TRY(accumulator.begin());
  return accumulator;
}

Status GradientAccumulator::begin() {
  tokens_ = 0;
  return device_->zero(sums_.data(), sums_.bytes());
}

Status GradientAccumulator::add(size_t index, const void* gradient, DType dtype) {
  if (index >= counts_.size()) {
    return Error(Code::kOutOfRange, "optimizer.bad_index", cat("tensor ", index, " of ", counts_.size()));
  }
  const int64_t count = counts_[index];
  float* sum = sums_.as<float>() + offsets_[index];
  if (dtype == DType::kF32) return device_->add(sum, sum, gradient, DType::kF32, count);
  INVAR_TRY(device_->cast(scratch_.data(), DType::kF32, gradient, dtype, count));
  return device_->add(sum, sum, scratch_.data(), DType::kF32, count);
}

Result<double> GradientAccumulator::norm_squared() const {
  double total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    INVAR_ASSIGN(const double sum, device_->sum_squares(this->sum(i), counts_[i]));
    total += sum;
  }
  return total;
}

Result<int64_t> GradientAccumulator::first_non_finite() const {
  for (size_t i = 0; i < counts_.size(); ++i) {
    INVAR_ASSIGN(const bool finite, device_->all_finite(sum(i), counts_[i]));
    if (!finite) return static_cast<int64_t>(i);
  }
  return int64_t{-1};
}

}  // namespace invar
