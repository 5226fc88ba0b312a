// Conversions of whole spans, on the widest instruction set this CPU has.
//
//   convert_fp8_to_bf16(DType::kE4M3FN, codes, out, count, scale);
//
// Every function gives the bits of the scalar rule (formats.h) at every level, for any length and any
// element-aligned address, whatever the host's floating-point mode is (flush-to-zero, rounding): it is
// set for the call and restored. Only x86-64 has levels above kPortable.
// `format` is one of the four 8-bit floats unless a function says otherwise. Spans do not overlap.
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "core/numerics/cpu_features.h"
#include "core/numerics/formats.h"

namespace invar {

// kStreaming writes past the caches: for output that is not read soon and is larger than they are.
enum class Store { kCached, kStreaming };

// How FP8 times FP32 scale becomes BF16.
enum class ProductRounding {
  kF32,   // FP32 product, then BF16: what every reference implementation does
  kOnce,  // the exact product rounded once
};

// The rule for one element: out = round(decode(code) * scale). A NaN code is NaN with the code's sign.
uint16_t bf16_from_fp8(DType format, uint8_t code, float scale, ProductRounding rounding = ProductRounding::kF32);

// FP8 times one scale.
void convert_fp8_to_bf16(DType format, const uint8_t* codes, uint16_t* out, int64_t count, float scale,
                         Store store = Store::kCached, CpuLevel level = cpu_level());
// A row whose scale changes every `segment` elements: element i takes scales[i / segment].
void convert_fp8_row_to_bf16(DType format, const uint8_t* codes, uint16_t* out, int64_t count, const float* scales,
                             int64_t segment, Store store = Store::kCached, CpuLevel level = cpu_level());
// A piece of such a row as BF16, F16 or F32 (`to`); the piece may begin inside a segment, of which `first` elements are
// left. scales[0] is that segment's.
void convert_fp8_row(DType format, const uint8_t* codes, DType to, void* out, int64_t count, const float* scales,
                     int64_t first, int64_t segment, CpuLevel level = cpu_level());
// Rounded once (ProductRounding::kOnce); portable code, table driven.
void convert_fp8_to_bf16_once(DType format, const uint8_t* codes, uint16_t* out, int64_t count, float scale);
// out = decode(code) * scale in FP32.
void convert_fp8_to_f32(DType format, const uint8_t* codes, float* out, int64_t count, float scale,
                        CpuLevel level = cpu_level());
// out = FP16 of the FP32 product, directly (never by way of BF16); overflow gives Inf.
void convert_fp8_to_f16(DType format, const uint8_t* codes, uint16_t* out, int64_t count, float scale,
                        CpuLevel level = cpu_level());

// How a factor meets the input of an encoder. Division is what compressed-tensors and torch do with a
// scale_inv; for powers of two both are the same.
enum class Apply { kMultiply, kDivide };

// codes = saturating nearest-even of in * factor (or in / factor), the product rounded to FP32 first.
void convert_f32_to_fp8(DType format, const float* in, uint8_t* codes, int64_t count, float factor = 1,
                        Apply apply = Apply::kMultiply, CpuLevel level = cpu_level());
void convert_bf16_to_fp8(DType format, const uint16_t* in, uint8_t* codes, int64_t count, float factor = 1,
                         Apply apply = Apply::kMultiply, CpuLevel level = cpu_level());

void convert_f32_to_bf16(const float* in, uint16_t* out, int64_t count, CpuLevel level = cpu_level());
void convert_bf16_to_f32(const uint16_t* in, float* out, int64_t count, CpuLevel level = cpu_level());
void convert_f32_to_f16(const float* in, uint16_t* out, int64_t count, CpuLevel level = cpu_level());
void convert_f16_to_f32(const uint16_t* in, float* out, int64_t count, CpuLevel level = cpu_level());

// The FP32 bits of max |in|: an integer maximum, so any Inf or NaN shows as a result >= 0x7F800000. 0 when empty.
uint32_t amax_bits_f32(const float* in, int64_t count, CpuLevel level = cpu_level());
uint32_t amax_bits_bf16(const uint16_t* in, int64_t count, CpuLevel level = cpu_level());

// What a span of codes holds; spans add up.
struct Fp8Counts {
  int64_t nan = 0;
  int64_t infinite = 0;
  int64_t zero = 0;
  int64_t saturated = 0;       // |code| is the largest finite value's
  uint32_t max_magnitude = 0;  // the largest |code| among finite ones

  void merge(const Fp8Counts& other);
  bool operator==(const Fp8Counts&) const = default;
};
void count_codes(DType format, const uint8_t* codes, int64_t count, Fp8Counts& counts, CpuLevel level = cpu_level());

// largest[i] = max(largest[i], codes[i] without its sign bit), for 8-bit floats: row after row gives the largest code
// of every column. A NaN code counts as the largest.
void raise_to_magnitudes(const uint8_t* codes, int64_t count, uint8_t* largest);

// What a conversion to FP16 lost: codes that were finite and became Inf, and codes that were not zero and became
// zero or subnormal. `out` is the result of convert_fp8_to_f16.
struct HalfCounts {
  int64_t overflowed = 0;
  int64_t underflowed = 0;
};
void count_half_range(DType format, const uint8_t* codes, const uint16_t* out, int64_t count, HalfCounts& counts);

// FP32 from a span of any floating format: F32, F64, F16, BF16, the four FP8, E8M0, E2M1 (two a byte, low nibble
// first). False, and nothing written, for any other dtype.
bool convert_to_f32(DType from, const void* in, float* out, int64_t count, CpuLevel level = cpu_level());
// The other way; 8-bit and smaller formats saturate, the rest overflow to Inf. Unused high nibbles are zero.
bool convert_from_f32(DType to, const float* in, void* out, int64_t count, CpuLevel level = cpu_level());

}  // namespace invar
