// Reads and writes one element of a stored array as FP64, by its dtype. For the scalar operations only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/numerics/formats.h"

namespace invar::cpu::reference {

inline float float_of_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t bits_of_float(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline double load(const void* data, int32_t dtype, int64_t index) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kBF16: return f32_from_bf16(static_cast<const uint16_t*>(data)[index]);
    case DType::kF16: return f32_from_f16(static_cast<const uint16_t*>(data)[index]);
    case DType::kF64: return static_cast<const double*>(data)[index];
    default: return 0;
  }
}

// FP64 to FP32 made odd where inexact: rounding that to a shorter format equals rounding once.
inline float odd_float(double value) {
  const float nearest = static_cast<float>(value);
  if (nearest != nearest || std::isinf(nearest) || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = bits_of_float(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // toward zero
  return float_of_bits(bits | 1);
}

inline void store(void* data, int32_t dtype, int64_t index, double value) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32: static_cast<float*>(data)[index] = static_cast<float>(value); break;
    case DType::kBF16: static_cast<uint16_t*>(data)[index] = bf16_from_f32(odd_float(value)); break;
    case DType::kF16: static_cast<uint16_t*>(data)[index] = f16_from_f32(odd_float(value)); break;
    case DType::kF64: static_cast<double*>(data)[index] = value; break;
    default: break;
  }
}

}  // namespace invar::cpu::reference
