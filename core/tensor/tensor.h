// A tensor in host memory: dtype, shape, elements and, when quantised, the scales that belong to them.
//
//   auto tensor = Tensor::view(DType::kF32, {2, 3}, memory);   // memory: a shared_ptr that keeps the bytes alive
//
// Invariants: row-major without gaps; scales exist exactly when quantized(); elements() * bits fits int64.
// Copies share the memory. Thread rule: values; writers of the elements see to their own order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/numerics/dtype.h"

namespace invar {

// value[r, c] = decode(code[r, c]) * scale_inv[r / block_rows, c / block_cols], FP32 scales row-major [rows, cols].
struct TensorScales {
  std::shared_ptr<float> scale_inv;
  int64_t rows = 0, cols = 0;
  int64_t block_rows = 0, block_cols = 0;
};

class Tensor {
 public:
  static constexpr size_t kMaxRank = 8;

  // "tensor.shape" for a negative size, too many dimensions or a product that overflows; "tensor.dtype".
  static Result<Tensor> view(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void> memory);
  // Bytes that a tensor of this shape takes; the same checks.
  static Result<int64_t> bytes_of_shape(DType dtype, std::span<const int64_t> shape);

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t elements() const { return elements_; }
  int64_t bytes() const { return bytes_of(dtype_, elements_); }
  void* data() const { return memory_.get(); }
  const std::shared_ptr<void>& memory() const { return memory_; }
  // As a matrix: the last dimension, and all others together. A scalar is 1 x 1.
  int64_t cols() const { return shape_.empty() ? 1 : shape_.back(); }
  int64_t rows() const { return cols() == 0 ? 0 : elements_ / cols(); }

  bool quantized() const { return scales_.scale_inv != nullptr; }
  const TensorScales& scales() const { return scales_; }
  void set_scales(TensorScales scales) { scales_ = std::move(scales); }

 private:
  Tensor() = default;
  DType dtype_ = DType::kUnspecified;
  std::vector<int64_t> shape_;
  int64_t elements_ = 0;
  std::shared_ptr<void> memory_;
  TensorScales scales_;
};

}  // namespace invar
