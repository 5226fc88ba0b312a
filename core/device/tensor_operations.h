// Operations on whole tensors, for hosts that use the library's numerics by themselves. Results are new tensors in
// memory of the device. Thread rule: that of the device.
#pragma once

#include <memory>
#include <vector>

#include "core/base/status.h"
#include "core/device/device.h"
#include "core/tensor/tensor.h"

namespace invar {

struct QuantizeOptions {
  DType format = DType::kE4M3FN;            // or kE5M2
  int32_t granularity = INVAR_SCALE_BLOCK;  // INVAR_SCALE_*
  bool power_of_two = false;
  int64_t block_rows = 128, block_cols = 128;  // INVAR_SCALE_BLOCK
};

// Zeros. RESOURCE_EXHAUSTED with the size.
Result<Tensor> make_tensor(Device& device, DType dtype, std::vector<int64_t> shape);
// Between float formats, by way of FP32, to nearest even; formats of 8 bits and less saturate. "tensor.dtype",
// "tensor.quantized" for quantised tensors, whose codes mean nothing without their scales.
Result<Tensor> cast_tensor(Device& device, const Tensor& tensor, DType to);
// F32 or BF16, taken as a matrix [rows, cols].
Result<Tensor> quantize_tensor(Device& device, const Tensor& tensor, const QuantizeOptions& options);
// decode(code) * scale_inv in FP32, rounded to F32, BF16 or F16. "tensor.not_quantized".
Result<Tensor> dequantize_tensor(Device& device, const Tensor& tensor, DType to);
// [rows, inner] x [inner, cols]; both F32 or both BF16, rank 2; the result F32 or BF16. "tensor.shape" names both.
Result<Tensor> matmul_tensors(Device& device, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
                              DType to);

}  // namespace invar
