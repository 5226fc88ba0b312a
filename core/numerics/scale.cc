#include "core/numerics/scale.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/numerics/fp_mode.h"

namespace invar {
namespace {

constexpr uint32_t kInfBits = 0x7F800000u;
constexpr float kLeastScale = 0x1p-126f;

// The least power of two >= value; value is positive, finite and normal.
float power_of_two_not_below(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t up = (bits + 0x7FFFFFu) & 0xFF800000u;
  return std::bit_cast<float>(std::min(up, 0x7F000000u));
}

uint32_t amax_of_row(const float* x, int64_t count, CpuLevel level) { return amax_bits_f32(x, count, level); }
uint32_t amax_of_row(const uint16_t* x, int64_t count, CpuLevel level) { return amax_bits_bf16(x, count, level); }

void encode_row(DType format, const float* x, uint8_t* codes, int64_t count, float scale_inv, CpuLevel level) {
  convert_f32_to_fp8(format, x, codes, count, scale_inv, Apply::kDivide, level);
}
void encode_row(DType format, const uint16_t* x, uint8_t* codes, int64_t count, float scale_inv, CpuLevel level) {
  convert_bf16_to_fp8(format, x, codes, count, scale_inv, Apply::kDivide, level);
}

bool is_zero(float x) { return (std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu) == 0; }
bool is_zero(uint16_t x) { return (x & 0x7FFFu) == 0; }
bool is_finite(float x) { return (std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu) < kInfBits; }
bool is_finite(uint16_t x) { return (x & 0x7FFFu) < 0x7F80u; }
float as_float(float x) { return x; }
float as_float(uint16_t x) { return f32_from_bf16(x); }

template <typename In>
uint32_t amax_bits_of(const In* x, int64_t rows, int64_t cols, int64_t ldx, CpuLevel level) {
  uint32_t most = 0;
  for (int64_t row = 0; row < rows; ++row) most = std::max(most, amax_of_row(x + row * ldx, cols, level));
  return most;
}

template <typename In>
Status non_finite(const In* x, int64_t ldx, const BlockGrid::Extent& block) {
  for (int64_t row = block.row; row < block.row + block.rows; ++row) {
    for (int64_t col = block.col; col < block.col + block.cols; ++col) {
      const In value = x[row * ldx + col];
      if (is_finite(value)) continue;
      return Error(Code::kInvalidArgument, "scale.non_finite",
                   cat("element [", row, ", ", col, "] is ", as_float(value), ": only finite values can be quantised"));
    }
  }
  return Error(Code::kInternal, "scale.non_finite", "a block's maximum is not finite but its elements are");
}

template <typename In>
int64_t count_underflows(const In* x, const uint8_t* codes, int64_t count) {
  int64_t underflowed = 0;
  for (int64_t i = 0; i < count; ++i) underflowed += (codes[i] & 0x7F) == 0 && !is_zero(x[i]);
  return underflowed;
}

template <typename In>
Status quantize_matrix(const BlockGrid& grid, const ScaleRule& rule, const In* x, int64_t ldx, uint8_t* codes,
                       float* scale_inv, QuantizeStats* stats, CpuLevel level) {
  if (!is_fp8(rule.format)) {
    return Error(Code::kInvalidArgument, "scale.rule",
                 cat("cannot quantise to ", name_of(rule.format), ": expected an 8-bit float"));
  }
  for (int64_t grid_row = 0; grid_row < grid.grid_rows(); ++grid_row) {
    for (int64_t grid_col = 0; grid_col < grid.grid_cols(); ++grid_col) {
      const BlockGrid::Extent block = grid.extent(grid_row, grid_col);
      const In* first = x + block.row * ldx + block.col;
      const uint32_t most = amax_bits_of(first, block.rows, block.cols, ldx, level);
      if (most >= kInfBits) return non_finite(x, ldx, block);
      const float amax = std::bit_cast<float>(most);
      INVAR_ASSIGN(const float block_scale, scale_inv_of(amax, rule));
      *scale_inv++ = block_scale;
      for (int64_t row = 0; row < block.rows; ++row) {
        uint8_t* to = codes + (block.row + row) * grid.cols + block.col;
        encode_row(rule.format, first + row * ldx, to, block.cols, block_scale, level);
        if (stats == nullptr) continue;
        count_codes(rule.format, to, block.cols, stats->codes, level);
        stats->underflowed += count_underflows(first + row * ldx, to, block.cols);
      }
      if (stats != nullptr) stats->amax = std::max(stats->amax, amax);
    }
  }
  return {};
}

template <typename In>
void quantize_matrix_with(const BlockGrid& grid, DType format, const In* x, int64_t ldx, const float* scale_inv,
                          uint8_t* codes, CpuLevel level) {
  for (int64_t row = 0; row < grid.rows; ++row) {
    const float* scales = scale_inv + row / grid.block_rows * grid.grid_cols();
    for (int64_t col = 0; col < grid.cols; col += grid.block_cols) {
      const int64_t count = std::min(grid.block_cols, grid.cols - col);
      encode_row(format, x + row * ldx + col, codes + row * grid.cols + col, count, *scales++, level);
    }
  }
}

}  // namespace

BlockGrid BlockGrid::per_tensor(int64_t rows, int64_t cols) {
  return {rows, cols, std::max<int64_t>(rows, 1), std::max<int64_t>(cols, 1)};
}

BlockGrid BlockGrid::per_row(int64_t rows, int64_t cols) { return {rows, cols, 1, std::max<int64_t>(cols, 1)}; }

BlockGrid BlockGrid::blocks(int64_t rows, int64_t cols, int64_t block_rows, int64_t block_cols) {
  return {rows, cols, block_rows, block_cols};
}

BlockGrid::Extent BlockGrid::extent(int64_t grid_row, int64_t grid_col) const {
  const int64_t row = grid_row * block_rows, col = grid_col * block_cols;
  return {row, col, std::min(block_rows, rows - row), std::min(block_cols, cols - col)};
}

Result<float> scale_inv_of(float amax, const ScaleRule& rule) {
  const FpModeScope mode;
  const FormatInfo* format = find_format(rule.format);
  if (format == nullptr || format->specials == Specials::kScale) {
    return Error(Code::kInvalidArgument, "scale.rule", cat("no scale can be made for ", name_of(rule.format)));
  }
  if (std::isnan(amax) || std::isinf(amax) || amax < 0) {
    return Error(Code::kInvalidArgument, "scale.non_finite",
                 cat("the largest magnitude is ", amax, ": expected a finite number that is not negative"));
  }
  if (amax == 0) return 1.0f;
  const bool power_of_two = rule.power_of_two || rule.scale_dtype == DType::kE8M0;
  float scale_inv = std::max(amax / max_finite(rule.format), kLeastScale);
  if (power_of_two) scale_inv = power_of_two_not_below(scale_inv);
  switch (rule.scale_dtype) {
    case DType::kF32:
    case DType::kE8M0: return scale_inv;
    case DType::kBF16: return f32_from_bf16(bf16_from_f32(scale_inv));
    case DType::kF16: {
      const float stored = f32_from_f16(f16_from_f32(std::max(scale_inv, 0x1p-14f)));
      if (!std::isinf(stored)) return stored;
      return Error(Code::kInvalidArgument, "scale.rule",
                   cat("scale ", scale_inv, " for a largest magnitude of ", amax, " does not fit F16"));
    }
    default:
      return Error(
          Code::kInvalidArgument, "scale.rule",
          cat("scales cannot be stored as ", name_of(rule.scale_dtype), ": expected F32, BF16, F16 or F8_E8M0"));
  }
}

uint32_t amax_bits(const float* x, int64_t rows, int64_t cols, int64_t ldx, CpuLevel level) {
  return amax_bits_of(x, rows, cols, ldx, level);
}

uint32_t amax_bits(const uint16_t* x_bf16, int64_t rows, int64_t cols, int64_t ldx, CpuLevel level) {
  return amax_bits_of(x_bf16, rows, cols, ldx, level);
}

Status quantize(const BlockGrid& grid, const ScaleRule& rule, const float* x, int64_t ldx, uint8_t* codes,
                float* scale_inv, QuantizeStats* stats, CpuLevel level) {
  return quantize_matrix(grid, rule, x, ldx, codes, scale_inv, stats, level);
}

Status quantize(const BlockGrid& grid, const ScaleRule& rule, const uint16_t* x_bf16, int64_t ldx, uint8_t* codes,
                float* scale_inv, QuantizeStats* stats, CpuLevel level) {
  return quantize_matrix(grid, rule, x_bf16, ldx, codes, scale_inv, stats, level);
}

void quantize_with(const BlockGrid& grid, DType format, const float* x, int64_t ldx, const float* scale_inv,
                   uint8_t* codes, CpuLevel level) {
  quantize_matrix_with(grid, format, x, ldx, scale_inv, codes, level);
}

void quantize_with(const BlockGrid& grid, DType format, const uint16_t* x_bf16, int64_t ldx, const float* scale_inv,
                   uint8_t* codes, CpuLevel level) {
  quantize_matrix_with(grid, format, x_bf16, ldx, scale_inv, codes, level);
}

void dequantize_to_bf16(const BlockGrid& grid, DType format, const uint8_t* codes, int64_t ld, const float* scale_inv,
                        uint16_t* out, int64_t ld_out, Store store, CpuLevel level) {
  for (int64_t row = 0; row < grid.rows; ++row) {
    const float* scales = scale_inv + row / grid.block_rows * grid.grid_cols();
    convert_fp8_row_to_bf16(format, codes + row * ld, out + row * ld_out, grid.cols, scales, grid.block_cols, store,
                            level);
  }
}

void dequantize_to_f32(const BlockGrid& grid, DType format, const uint8_t* codes, int64_t ld, const float* scale_inv,
                       float* out, int64_t ld_out, CpuLevel level) {
  for (int64_t row = 0; row < grid.rows; ++row) {
    const float* scales = scale_inv + row / grid.block_rows * grid.grid_cols();
    for (int64_t col = 0; col < grid.cols; col += grid.block_cols) {
      const int64_t count = std::min(grid.block_cols, grid.cols - col);
      convert_fp8_to_f32(format, codes + row * ld + col, out + row * ld_out + col, count, *scales++, level);
    }
  }
}

}  // namespace invar
