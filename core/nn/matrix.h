// A view of a row-major matrix in device memory. Thread rule: a value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/numerics/dtype.h"

namespace invar {

struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;
  int64_t ld = 0;  // elements from one row to the next

  // Columns [first, first + count).
  Matrix columns(int64_t first, int64_t count) const {
    Matrix part = *this;
    part.data = static_cast<std::byte*>(data) + bytes_of(dtype, first);
    part.cols = count;
    return part;
  }
  float* f32() const { return static_cast<float*>(data); }
  int32_t device_dtype() const { return static_cast<int32_t>(dtype); }
};

}  // namespace invar
