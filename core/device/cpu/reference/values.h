// Reads and writes one element of a stored array as FP64, by its dtype. For the scalar operations only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "core/numerics/dtype.h"

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

inline float bf16_to_float(uint16_t bits) { return float_of_bits(uint32_t{bits} << 16); }

// To nearest even; NaN stays a (quiet) NaN.
inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = bits_of_float(value);
  if (value != value) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline double half_to_double(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double magnitude;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// To nearest even, overflow to infinity.
inline uint16_t double_to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude != magnitude) return sign | 0x7e00;
  if (magnitude >= 65520.0) return sign | 0x7c00;
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < -14) exponent = -14;
  // Codes are ordered like their values: a mantissa rounded up to 2048 carries into the exponent by itself.
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 10 - exponent)));
  return static_cast<uint16_t>(sign + ((exponent + 14) << 10) + steps);
}

inline double load(const void* data, int32_t dtype, int64_t index) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32: return static_cast<const float*>(data)[index];
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case DType::kF16: return half_to_double(static_cast<const uint16_t*>(data)[index]);
    case DType::kF64: return static_cast<const double*>(data)[index];
    default: return 0;
  }
}

// One rounding, from FP64: BF16 goes through FP32 made odd on inexactness, so that it is not rounded twice.
inline uint16_t double_to_bf16(double value) {
  float nearest = static_cast<float>(value);
  if (nearest != nearest || std::isinf(nearest) || static_cast<double>(nearest) == value) return float_to_bf16(nearest);
  uint32_t bits = bits_of_float(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // toward zero
  return float_to_bf16(float_of_bits(bits | 1));
}

inline void store(void* data, int32_t dtype, int64_t index, double value) {
  switch (static_cast<DType>(dtype)) {
    case DType::kF32: static_cast<float*>(data)[index] = static_cast<float>(value); break;
    case DType::kBF16: static_cast<uint16_t*>(data)[index] = double_to_bf16(value); break;
    case DType::kF16: static_cast<uint16_t*>(data)[index] = double_to_half(value); break;
    case DType::kF64: static_cast<double*>(data)[index] = value; break;
    default: break;
  }
}

}  // namespace invar::cpu::reference
