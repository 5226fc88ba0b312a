// The yardstick: one BF16 or FP32 product by oneDNN.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace invar::cpu {

struct OnednnProduct {
  int64_t rows, cols, inner;
  int32_t dtype, c_dtype;
  bool transpose_a, transpose_b;
  bool packed_b;  // B in the layout that oneDNN likes best, made beforehand
  const void* a;
  const void* b;
  void* c;
};

// A call that runs the product, threads taken from OpenMP's setting; empty when oneDNN refuses the shape.
std::function<void()> make_onednn(const OnednnProduct& product);
void set_onednn_threads(int threads);

}  // namespace invar::cpu
