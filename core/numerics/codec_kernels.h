// Internal to the codecs: the table of loops that one instruction set offers.
//
// A kernel converts the front of a span in whole chunks and returns how many elements that was; codec.cc
// does the rest through a padded buffer, so kernels hold no tails. It runs with masked exceptions, nearest
// rounding and subnormals on. Plain types only: files compiled for one instruction set include no
// standard-library templates.
#pragma once

#include <stdint.h>

namespace invar {

// Position of the 8-bit formats in the tables below.
enum { kIndexE4M3FN = 0, kIndexE5M2 = 1, kIndexE4M3FNUZ = 2, kIndexE5M2FNUZ = 3, kFp8Formats = 4 };

// Counts of a span as kernels report them; see Fp8Counts.
struct RawCounts {
  int64_t nan, infinite, zero, saturated;
  uint32_t max_magnitude;
};

struct CodecKernels {
  // Every kernel takes any multiple of this whole, and tells how much it took; also the padded buffer's size, at most
  // 64.
  int64_t chunk;
  // For scales with 2^-100 <= |scale| <= 2^100: products are then normal numbers. The second writes past the
  // caches and needs out aligned to 64 bytes.
  int64_t (*fp8_to_bf16[kFp8Formats])(const uint8_t* in, uint16_t* out, int64_t count, float scale);
  int64_t (*fp8_to_bf16_streaming[kFp8Formats])(const uint8_t* in, uint16_t* out, int64_t count, float scale);
  int64_t (*fp8_to_f32[kFp8Formats])(const uint8_t* in, float* out, int64_t count, float scale);
  int64_t (*fp8_to_f16[kFp8Formats])(const uint8_t* in, uint16_t* out, int64_t count, float scale);
  int64_t (*f32_to_fp8[kFp8Formats])(const float* in, uint8_t* out, int64_t count, float factor, bool divide);
  int64_t (*bf16_to_fp8[kFp8Formats])(const uint16_t* in, uint8_t* out, int64_t count, float factor, bool divide);
  int64_t (*f32_to_bf16)(const float* in, uint16_t* out, int64_t count);
  int64_t (*bf16_to_f32)(const uint16_t* in, float* out, int64_t count);
  int64_t (*f32_to_f16)(const float* in, uint16_t* out, int64_t count);
  int64_t (*f16_to_f32)(const uint16_t* in, float* out, int64_t count);
  int64_t (*amax_f32)(const float* in, int64_t count, uint32_t* bits);                       // raises *bits
  int64_t (*amax_bf16)(const uint16_t* in, int64_t count, uint32_t* bits);                   // as FP32 bits
  int64_t (*count_codes[kFp8Formats])(const uint8_t* in, int64_t count, RawCounts* counts);  // adds to *counts
};

// Scalar loops over the decode tables, also used by kernels for the rare chunk that holds a NaN code.
void portable_fp8_to_bf16(int format_index, const uint8_t* in, uint16_t* out, int64_t count, float scale);
void portable_fp8_to_f32(int format_index, const uint8_t* in, float* out, int64_t count, float scale);
void portable_fp8_to_f16(int format_index, const uint8_t* in, uint16_t* out, int64_t count, float scale);

extern const CodecKernels kCodecPortable;
#if defined(__x86_64__)
extern const CodecKernels kCodecAvx2;
extern const CodecKernels kCodecAvx512;
extern const CodecKernels kCodecAvx512Bf16;
#endif

}  // namespace invar
