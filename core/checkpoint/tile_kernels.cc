#include "core/checkpoint/tile_kernels.h"

#include <xxhash.h>

#include <algorithm>

#include "core/numerics/formats.h"

namespace invar {
namespace {

void count_portable(const uint8_t* codes, int64_t n, const CodeShape* shape, CodeCounts* counts) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = codes[i] & 0x7Fu;
    const bool nan = shape->minus_zero_is_nan ? codes[i] == 0x80 : magnitude >= shape->first_not_finite;
    counts->not_finite += nan;
    counts->zero += magnitude == 0 && !nan;
    counts->saturated += magnitude == shape->largest;
    if (magnitude > counts->largest) counts->largest = magnitude;
  }
}

float half_value(uint8_t code, int half_bits) {
  const uint32_t bits = (code & 0x80u) << 8 | (code & 0x7Fu) << half_bits;
  return f32_from_f16(static_cast<uint16_t>(bits));
}

template <typename Out, typename Round>
void row_portable(const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
                  Out* out, Round round) {
  int64_t left = first;
  for (int64_t i = 0; i < n; ++i, --left) {
    if (left == 0) {
      ++scales;
      left = block;
    }
    out[i] = round(half_value(codes[i], half_bits) * *scales);
  }
}

constexpr TileKernels kPortable = {
    count_portable,
    [](const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
       uint16_t* out) { row_portable(codes, n, scales, first, block, half_bits, out, bf16_from_f32); },
    [](const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits,
       uint16_t* out) { row_portable(codes, n, scales, first, block, half_bits, out, f16_from_f32); },
    [](const uint8_t* codes, int64_t n, const float* scales, int64_t first, int64_t block, int half_bits, float* out) {
      row_portable(codes, n, scales, first, block, half_bits, out, [](float value) { return value; });
    },
    [](const uint16_t* values, int64_t n) {
      uint32_t largest = 0;
      for (int64_t i = 0; i < n; ++i) largest = std::max<uint32_t>(largest, values[i] & 0x7FFFu);
      return largest;
    },
    [](const uint32_t* values, int64_t n) {
      uint32_t largest = 0;
      for (int64_t i = 0; i < n; ++i) largest = std::max<uint32_t>(largest, values[i] & 0x7FFFFFFFu);
      return largest;
    },
    [](const void* bytes, int64_t n) -> uint64_t { return XXH3_64bits(bytes, static_cast<size_t>(n)); },
};

constexpr CodeShape kShapes[] = {
    {DType::kE4M3FN, 7, 256.0f, 0x7F, 0x7E, false},
    {DType::kE5M2, 8, 1.0f, 0x7C, 0x7B, false},
    {DType::kE4M3FNUZ, 7, 128.0f, 0x80, 0x7F, true},
};

}  // namespace

const CodeShape* code_shape(DType dtype) {
  for (const CodeShape& shape : kShapes) {
    if (shape.dtype == dtype) return &shape;
  }
  return nullptr;
}

const TileKernels* tile_kernels_portable() { return &kPortable; }

const TileKernels* tile_kernels(CpuLevel level) {
  if (level >= CpuLevel::kAvx512Bf16) return tile_kernels_avx512();
  if (level >= CpuLevel::kAvx2) return tile_kernels_avx2();
  return tile_kernels_portable();
}

}  // namespace invar
