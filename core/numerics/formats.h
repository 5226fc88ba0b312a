// Every floating-point storage format as data, and the scalar codecs that define what it means.
//
//   float w = decode(DType::kE4M3FN, code);                 // exact
//   uint8_t q = encode_fp8(DType::kE4M3FN, x);              // nearest even, saturating
//   uint16_t b = bf16_from_f32(x);                          // nearest even, NaN quieted, -0 kept
//
// A format is one line of kFormats; codecs read the line. They work on integers only, so they do not
// depend on the host's floating-point mode: subnormals survive flush-to-zero. The vector codecs
// (codec.h) are tested bit for bit against these.
//
// Rules. Rounding is to nearest, ties to even. 8-bit and smaller formats saturate to the largest finite
// value by default, infinities included; Overflow::kNonFinite gives Inf where the format has it, else
// NaN. FP16 and BF16 overflow to Inf (a loss scaler must see it). NaN becomes the format's quiet NaN
// with its sign; formats without NaN (E2M1, E2M3, E3M2) take +max, as CUDA's conversions do. E8M0 has
// neither sign nor zero: it is for scales, is rounded up (a scale that is too small would clip), zero
// becomes 2^-127 and negative numbers NaN.
// Not here: codebooks and integers (NF4, INT4, INT8) are not sign-exponent-mantissa formats.
//
// Sources: OCP 8-bit Floating Point Specification 1.0; OCP Microscaling Formats 1.0; Noune et al. 2022
// (FNUZ). Thread rule: pure functions.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/numerics/dtype.h"

namespace invar {

// What the codes beyond the finite values mean.
enum class Specials {
  kIeee,    // all-ones exponent: Inf, then NaNs
  kFn,      // all ones is NaN, no Inf
  kFnuz,    // the code of minus zero is the one NaN; no Inf, no minus zero
  kFinite,  // none
  kScale,   // E8M0: no sign, no zero, 0xFF is NaN
};

enum class Overflow { kSaturate, kNonFinite };

struct FormatInfo {
  DType dtype;
  int exponent_bits, mantissa_bits, bias;
  Specials specials;
  uint32_t max_code;  // of the largest finite value, sign excluded
  uint32_t nan_code;  // canonical, sign excluded; 0 where there is none

  constexpr bool has_sign() const { return specials != Specials::kScale; }
  constexpr bool has_nan() const { return specials != Specials::kFinite; }
  constexpr bool has_inf() const { return specials == Specials::kIeee; }
  constexpr int bits() const { return exponent_bits + mantissa_bits + (has_sign() ? 1 : 0); }
  constexpr uint32_t sign_mask() const { return has_sign() ? 1u << (exponent_bits + mantissa_bits) : 0; }
  constexpr uint32_t magnitude_mask() const { return (1u << (exponent_bits + mantissa_bits)) - 1; }
  constexpr bool is_nan(uint32_t code) const {
    switch (specials) {
      case Specials::kIeee: return (code & magnitude_mask()) > max_code + 1;
      case Specials::kFn:
      case Specials::kScale: return (code & magnitude_mask()) == nan_code;
      case Specials::kFnuz: return code == nan_code;
      case Specials::kFinite: return false;
    }
    return false;
  }
  constexpr bool is_inf(uint32_t code) const { return has_inf() && (code & magnitude_mask()) == max_code + 1; }
};

// FP32 itself is what everything decodes to and has no line.
inline constexpr FormatInfo kFormats[] = {
    {DType::kF16, 5, 10, 15, Specials::kIeee, 0x7BFF, 0x7E00},
    {DType::kBF16, 8, 7, 127, Specials::kIeee, 0x7F7F, 0x7FC0},
    {DType::kE4M3FN, 4, 3, 7, Specials::kFn, 0x7E, 0x7F},
    {DType::kE5M2, 5, 2, 15, Specials::kIeee, 0x7B, 0x7E},
    {DType::kE4M3FNUZ, 4, 3, 8, Specials::kFnuz, 0x7F, 0x80},
    {DType::kE5M2FNUZ, 5, 2, 16, Specials::kFnuz, 0x7F, 0x80},
    {DType::kE8M0, 8, 0, 127, Specials::kScale, 0xFE, 0xFF},
    {DType::kE2M1, 2, 1, 1, Specials::kFinite, 0x7, 0},
    {DType::kE2M3, 2, 3, 1, Specials::kFinite, 0x1F, 0},
    {DType::kE3M2, 3, 2, 3, Specials::kFinite, 0x1F, 0},
};

// The line of a format; nullptr for FP32, FP64, integers and kUnspecified.
constexpr const FormatInfo* find_format(DType dtype) {
  for (const FormatInfo& format : kFormats) {
    if (format.dtype == dtype) return &format;
  }
  return nullptr;
}

// As above for a format known to have a line.
constexpr const FormatInfo& format_info(DType dtype) { return *find_format(dtype); }

// The exact value of a code, as FP32 bits. NaN codes give the quiet NaN 0x7FC00000 with the code's sign (FNUZ: +);
// FP16 NaNs keep their payload and are quieted; BF16 is the upper half of FP32, whatever it holds.
constexpr uint32_t decode_bits(const FormatInfo& format, uint32_t code) {
  if (format.dtype == DType::kBF16) return code << 16;
  const uint32_t magnitude = code & format.magnitude_mask();
  const uint32_t sign = (code & format.sign_mask()) != 0 ? 0x80000000u : 0;
  const int mantissa_bits = format.mantissa_bits;
  if (format.is_nan(code)) {
    const uint32_t payload = format.bits() == 16 ? (magnitude << (23 - mantissa_bits)) & 0x3FFFFFu : 0;
    return (format.specials == Specials::kFnuz ? 0 : sign) | 0x7FC00000u | payload;
  }
  if (format.is_inf(code)) return sign | 0x7F800000u;
  if (format.specials == Specials::kScale) return code == 0 ? 0x00400000u : code << 23;
  const uint32_t exponent = magnitude >> mantissa_bits;
  uint32_t fraction = magnitude & ((1u << mantissa_bits) - 1);
  if (exponent != 0) {
    return sign | (exponent + 127u - static_cast<uint32_t>(format.bias)) << 23 | fraction << (23 - mantissa_bits);
  }
  if (fraction == 0) return sign;
  // Subnormal: fraction * 2^lowest.
  const int lowest = 1 - format.bias - mantissa_bits;
  const int top = 31 - std::countl_zero(fraction);
  const int biased = top + lowest + 127;
  if (biased <= 0) return sign | fraction << (lowest + 149);  // subnormal in FP32 too
  return sign | static_cast<uint32_t>(biased) << 23 | ((fraction << (23 - top)) & 0x7FFFFFu);
}

// FP32 bits to a code by the rules above.
constexpr uint32_t encode_bits(const FormatInfo& format, uint32_t value, Overflow overflow) {
  const uint32_t magnitude = value & 0x7FFFFFFFu;
  const bool negative = value >> 31 != 0;
  const uint32_t sign = negative ? format.sign_mask() : 0;
  const int mantissa_bits = format.mantissa_bits;
  const bool is_fnuz = format.specials == Specials::kFnuz;
  if (magnitude > 0x7F800000u) {
    if (!format.has_nan()) return format.max_code;
    if (format.bits() == 16) {
      return sign | format.nan_code | ((magnitude & 0x7FFFFFu) >> (23 - mantissa_bits));
    }
    return is_fnuz ? format.nan_code : sign | format.nan_code;
  }
  if (format.specials == Specials::kScale) {
    if (negative && magnitude != 0) return format.nan_code;
    if (magnitude <= 0x00400000u) return 0;
    const uint32_t up = (magnitude + 0x7FFFFFu) >> 23;
    if (up <= format.max_code) return up;
    return overflow == Overflow::kSaturate ? format.max_code : format.nan_code;
  }
  const int exponent_field = static_cast<int>(magnitude >> 23);
  const int exponent = exponent_field == 0 ? -126 : exponent_field - 127;
  const uint32_t significand = (magnitude & 0x7FFFFFu) | (exponent_field == 0 ? 0 : 0x800000u);
  const int scale = exponent > 1 - format.bias ? exponent : 1 - format.bias;
  const int dropped = scale - mantissa_bits - (exponent - 23);
  uint32_t kept = 0;
  if (dropped <= 24) {
    const uint32_t half = 1u << (dropped - 1), rest = significand & ((1u << dropped) - 1);
    kept = significand >> dropped;
    if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;
  }
  // The hidden bit in `kept` adds one to the exponent field, and so does a carry out of the mantissa.
  const uint32_t code = (static_cast<uint32_t>(scale + format.bias - 1) << mantissa_bits) + kept;
  if (code > format.max_code) {
    if (overflow == Overflow::kSaturate || !format.has_nan()) return sign | format.max_code;
    if (format.has_inf()) return sign | (format.max_code + 1);
    return is_fnuz ? format.nan_code : sign | format.nan_code;
  }
  if (is_fnuz && code == 0) return 0;
  return sign | code;
}

// The 256 values of a format of at most 8 bits; codes beyond a narrower format's width repeat.
constexpr std::array<uint32_t, 256> make_decode_table(const FormatInfo& format) {
  std::array<uint32_t, 256> table{};
  for (uint32_t code = 0; code < 256; ++code) {
    table[code] = decode_bits(format, code & (format.sign_mask() | format.magnitude_mask()));
  }
  return table;
}

// As FP32 bits; format of at most 8 bits, nullptr otherwise.
const uint32_t* decode_table_bits(DType format);
// The same memory as floats.
const float* decode_table(DType format);

// Constants of a format, exact.
inline float max_finite(DType format) {
  return std::bit_cast<float>(decode_bits(format_info(format), format_info(format).max_code));
}
inline float min_normal(DType format) {
  const FormatInfo& info = format_info(format);
  return std::bit_cast<float>(decode_bits(info, info.specials == Specials::kScale ? 0 : 1u << info.mantissa_bits));
}
// min_normal for E8M0, which has no subnormals.
inline float min_subnormal(DType format) {
  const FormatInfo& info = format_info(format);
  return std::bit_cast<float>(decode_bits(info, info.specials == Specials::kScale ? 0 : 1));
}

// Scalar conversions. `format` must have a line in kFormats.
inline float decode(DType format, uint32_t code) {
  return std::bit_cast<float>(decode_bits(format_info(format), code));
}
inline uint32_t encode(DType format, float value, Overflow overflow) {
  return encode_bits(format_info(format), std::bit_cast<uint32_t>(value), overflow);
}
// Any format of at most 8 bits, E8M0 and E2M1 included.
inline uint8_t encode_fp8(DType format, float value, Overflow overflow = Overflow::kSaturate) {
  return static_cast<uint8_t>(encode(format, value, overflow));
}

inline float f32_from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
inline uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
inline float f32_from_f16(uint16_t bits) { return decode(DType::kF16, bits); }
inline uint16_t f16_from_f32(float value) {
  return static_cast<uint16_t>(encode(DType::kF16, value, Overflow::kNonFinite));
}

// One rounding from FP64: a product of an 8-bit float and an FP32 scale is exact in FP64, so this is the
// correctly rounded product. (The default conversion rounds the product to FP32 first, as every
// reference implementation does.)
uint16_t bf16_from_f64(double value);

}  // namespace invar
