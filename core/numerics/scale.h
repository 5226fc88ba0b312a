// Where scales lie on a matrix, how a scale follows from a maximum, and quantizing by both.
//
//   const BlockGrid grid = BlockGrid::blocks(rows, cols, 128, 128);
//   INVAR_TRY(quantize(grid, {.format = DType::kE4M3FN}, x, cols, codes, scale_inv));
//   dequantize_to_bf16(grid, DType::kE4M3FN, codes, cols, scale_inv, out, cols);
//
// Definition, so that others who write these formats get the same bytes:
//   amax      = max |x| over the block, in FP32
//   scale_inv = amax / max_finite(format), one FP32 division; 1 where amax is 0
//   code      = nearest even of x / scale_inv (FP32 division, as torch and compressed-tensors do), saturating
//   value     = decode(code) * scale_inv, in FP32
// The scale used on encode is exactly the one stored, after any rounding of it. A power-of-two scale_inv is
// the smallest power that is not below amax / max (ceiling: nothing clips; the OCP MX text takes the floor
// and clips). A tiny amax is raised so that scale_inv >= 2^-126 and its reciprocal is finite.
// Non-finite values are refused: such data is already broken.
// Thread rule: pure functions; disjoint blocks may be worked on at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/status.h"
#include "core/numerics/codec.h"
#include "core/numerics/dtype.h"

namespace invar {

// A [rows, cols] matrix cut into blocks, ragged at the ends. Scales are stored row-major over the grid.
struct BlockGrid {
  int64_t rows = 0, cols = 0;
  int64_t block_rows = 1, block_cols = 1;  // positive

  static BlockGrid per_tensor(int64_t rows, int64_t cols);
  static BlockGrid per_row(int64_t rows, int64_t cols);
  static BlockGrid blocks(int64_t rows, int64_t cols, int64_t block_rows, int64_t block_cols);

  int64_t grid_rows() const { return (rows + block_rows - 1) / block_rows; }
  int64_t grid_cols() const { return (cols + block_cols - 1) / block_cols; }
  int64_t count() const { return grid_rows() * grid_cols(); }

  struct Extent {
    int64_t row, col;    // of the first element
    int64_t rows, cols;  // smaller than the block at the ends
  };
  Extent extent(int64_t grid_row, int64_t grid_col) const;
  bool operator==(const BlockGrid&) const = default;
};

// How a scale is chosen.
struct ScaleRule {
  DType format = DType::kE4M3FN;
  bool power_of_two = false;
  // What the scale will be stored as: kF32, kBF16, kF16 (rounded to nearest, never below the smallest normal)
  // or kE8M0 (a power of two whatever the flag says).
  DType scale_dtype = DType::kF32;
};

// INVALID_ARGUMENT "scale.non_finite" when amax is Inf or NaN, "scale.rule" when the rule cannot be.
Result<float> scale_inv_of(float amax, const ScaleRule& rule);

// Largest |x| of a strided matrix as FP32 bits; see amax_bits_f32.
uint32_t amax_bits(const float* x, int64_t rows, int64_t cols, int64_t ldx, CpuLevel level = cpu_level());
uint32_t amax_bits(const uint16_t* x_bf16, int64_t rows, int64_t cols, int64_t ldx, CpuLevel level = cpu_level());

struct QuantizeStats {
  float amax = 0;
  Fp8Counts codes;          // a zero or tiny block shows here as zeros
  int64_t underflowed = 0;  // were not zero and became zero
};

// format: one of the four 8-bit floats. x: ldx elements between rows. codes: [rows, cols] dense. scale_inv: grid.
// On failure the message names the block and its first bad element; codes and scale_inv are then unspecified.
Status quantize(const BlockGrid& grid, const ScaleRule& rule, const float* x, int64_t ldx, uint8_t* codes,
                float* scale_inv, QuantizeStats* stats = nullptr, CpuLevel level = cpu_level());
Status quantize(const BlockGrid& grid, const ScaleRule& rule, const uint16_t* x_bf16, int64_t ldx, uint8_t* codes,
                float* scale_inv, QuantizeStats* stats = nullptr, CpuLevel level = cpu_level());
// With scales that are given (delayed scaling, re-encoding): values beyond them saturate, NaN stays NaN.
void quantize_with(const BlockGrid& grid, DType format, const float* x, int64_t ldx, const float* scale_inv,
                   uint8_t* codes, CpuLevel level = cpu_level());
void quantize_with(const BlockGrid& grid, DType format, const uint16_t* x_bf16, int64_t ldx, const float* scale_inv,
                   uint8_t* codes, CpuLevel level = cpu_level());

// out[r, c] = decode(code) * scale_inv of its block. ld: elements between rows of codes and of out.
void dequantize_to_bf16(const BlockGrid& grid, DType format, const uint8_t* codes, int64_t ld, const float* scale_inv,
                        uint16_t* out, int64_t ld_out, Store store = Store::kCached, CpuLevel level = cpu_level());
void dequantize_to_f32(const BlockGrid& grid, DType format, const uint8_t* codes, int64_t ld, const float* scale_inv,
                       float* out, int64_t ld_out, CpuLevel level = cpu_level());

}  // namespace invar
