#include <algorithm>
#include <cmath>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/reference/values.h"

namespace invar::cpu::reference {
namespace {

// The magnitude's bits order values, infinities and NaN upwards: a broken input gives a broken amax.
float amax_of(const invar_quantize_args& args, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  uint32_t largest = 0;
  for (int64_t r = row; r < row + rows; ++r) {
    for (int64_t c = col; c < col + cols; ++c) {
      const auto value = static_cast<float>(load(args.x, args.x_dtype, r * args.ldx + c));
      largest = std::max(largest, bits_of_float(value) & 0x7fffffffu);
    }
  }
  return float_of_bits(largest);
}

// amax / largest in FP32, at least the smallest normal number so that its reciprocal is finite.
float scale_inv_of(float amax, DType format, bool is_power_of_two) {
  if (amax == 0) return 1;
  const float smallest = float_of_bits(0x00800000u);
  float scale_inv = amax / max_finite(format);
  if (scale_inv < smallest) scale_inv = smallest;
  if (!is_power_of_two || !std::isfinite(scale_inv)) return scale_inv;
  const uint32_t bits = bits_of_float(scale_inv);
  return float_of_bits((bits + 0x7fffffu) & 0x7f800000u);
}

}  // namespace

int32_t quantize(Context&, const invar_quantize_args& args) {
  const auto format = static_cast<DType>(args.format);
  const bool is_scaled = args.power_of_two != 0 || args.apply_scale != 0;
  int64_t block_rows = args.block_rows, block_cols = args.block_cols;
  if (args.granularity != INVAR_SCALE_BLOCK) {
    block_rows = args.granularity == INVAR_SCALE_PER_ROW ? 1 : std::max<int64_t>(args.rows, 1);
    block_cols = std::max<int64_t>(args.cols, 1);
  }
  const int64_t grid_cols = (args.cols + block_cols - 1) / block_cols;
  if (args.amax != nullptr) *args.amax = amax_of(args, 0, args.rows, 0, args.cols);
  for (int64_t row = 0; row < args.rows; row += block_rows) {
    for (int64_t col = 0; col < args.cols; col += block_cols) {
      const int64_t rows = std::min(block_rows, args.rows - row), cols = std::min(block_cols, args.cols - col);
      const float scale_inv = args.fixed_scale_inv != 0
                                  ? args.fixed_scale_inv
                                  : scale_inv_of(amax_of(args, row, rows, col, cols), format, args.power_of_two != 0);
      if (args.scale_inv != nullptr) args.scale_inv[row / block_rows * grid_cols + col / block_cols] = scale_inv;
      for (int64_t r = row; r < row + rows; ++r) {
        for (int64_t c = col; c < col + cols; ++c) {
          // The FP32 quotient is the rule: it is what other writers of FP8 checkpoints round.
          const float quotient = static_cast<float>(load(args.x, args.x_dtype, r * args.ldx + c)) / scale_inv;
          const uint8_t code = encode_fp8(format, quotient);
          if (args.codes != nullptr) args.codes[r * args.cols + c] = code;
          if (args.dequantized == nullptr) continue;
          const float decoded = decode(format, code);
          store(args.dequantized, args.dequantized_dtype == kF32 ? kF32 : kBF16, r * args.ld_dequantized + c,
                is_scaled ? decoded * scale_inv : decoded);
        }
      }
    }
  }
  return kOk;
}

}  // namespace invar::cpu::reference
