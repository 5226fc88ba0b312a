// The inner loops of conversion, one table for each instruction set: count codes, decode times scale, round, hash.
//
// Invariant: every table gives the same bits as the portable one (tile_kernels_test runs them all), for scales in
// [kSmallestFastScale, kLargestFastScale] and codes that are finite; other tiles take the scalar path of tile.h.
// The functions are plain C so that no standard template is compiled for one instruction set.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "core/numerics/cpu_features.h"
#include "core/numerics/dtype.h"

namespace invar {

// What the loops need to know of an 8-bit float.
struct CodeShape {
  DType dtype;
  int half_bits;              // code << half_bits are the bits of an FP16 number (sign moved apart) ...
  float unit;                 // ... that is the value divided by this power of two
  uint32_t first_not_finite;  // smallest magnitude that is Inf or NaN; 0x80: none
  uint32_t largest;           // magnitude of the largest finite value
  bool minus_zero_is_nan;     // FNUZ
};
// Null for formats that take the scalar path (E5M2FNUZ, E8M0).
const CodeShape* code_shape(DType dtype);

struct CodeCounts {
  int64_t not_finite = 0, zero = 0, saturated = 0;
  uint32_t largest = 0;  // largest magnitude among all codes
};

// With scales in here every product of a non-zero FP8 value is a normal number of FP32 and BF16.
inline constexpr float kSmallestFastScale = 0x1p-100f, kLargestFastScale = 0x1p+100f;

struct TileKernels {
  void (*count)(const uint8_t* codes, int64_t n, const CodeShape* shape, CodeCounts* counts);
  // One row of codes: the first `first` share scales[0], then every `block` the next one. The scales come multiplied
  // by CodeShape::unit.
  void (*row_to_bf16)(const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
                      uint16_t* out);
  void (*row_to_f16)(const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
                     uint16_t* out);
  void (*row_to_f32)(const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
                     float* out);
  // The largest magnitude, as bits, of 16-bit and 32-bit floats.
  uint32_t (*largest16)(const uint16_t* values, int64_t n);
  uint32_t (*largest32)(const uint32_t* values, int64_t n);
  uint64_t (*hash)(const void* bytes, int64_t n);  // XXH3, 64 bits
};

// The table for a level; never null.
const TileKernels* tile_kernels(CpuLevel level);

const TileKernels* tile_kernels_portable();
const TileKernels* tile_kernels_avx2();
const TileKernels* tile_kernels_avx512();

}  // namespace invar
