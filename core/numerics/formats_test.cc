// Every code of every format, every BF16 and FP16 value, every rounding edge.
#include "core/numerics/formats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr DType kEightBit[] = {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ};
constexpr DType kSigned[] = {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ,
                             DType::kE2M1,   DType::kE2M3, DType::kE3M2,     DType::kF16};

// The value of a code by the definition in the specifications, in FP64 and without bit tricks.
double defined_value(DType dtype, uint32_t code) {
  const FormatInfo& format = format_info(dtype);
  const int bits = format.bits();
  const uint32_t magnitude = code & format.magnitude_mask();
  const double sign = (code >> (bits - 1) & 1) != 0 ? -1.0 : 1.0;
  const uint32_t exponents = 1u << format.exponent_bits, fractions = 1u << format.mantissa_bits;
  const uint32_t exponent = magnitude / fractions, fraction = magnitude % fractions;
  switch (format.specials) {
    case Specials::kScale: return code == 255 ? NAN : std::ldexp(1.0, static_cast<int>(code) - 127);
    case Specials::kFnuz:
      if (code == 1u << (bits - 1)) return NAN;
      break;
    case Specials::kFn:
      if (exponent == exponents - 1 && fraction == fractions - 1) return NAN;
      break;
    case Specials::kIeee:
      if (exponent == exponents - 1) return fraction == 0 ? sign * HUGE_VAL : NAN;
      break;
    case Specials::kFinite: break;
  }
  const double unit = 1.0 / fractions;
  if (exponent == 0) return sign * std::ldexp(fraction * unit, 1 - format.bias);
  return sign * std::ldexp(1 + fraction * unit, static_cast<int>(exponent) - format.bias);
}

TEST(Formats, EveryCodeDecodesToItsDefinedValue) {
  for (const FormatInfo& format : kFormats) {
    int nans = 0;
    for (uint32_t code = 0; code < 1u << format.bits(); ++code) {
      const double expected = defined_value(format.dtype, code);
      const float value = decode(format.dtype, code);
      if (std::isnan(expected)) {
        ++nans;
        EXPECT_TRUE(std::isnan(value) && format.is_nan(code)) << name_of(format.dtype) << " code " << code;
        continue;
      }
      EXPECT_EQ(value, expected) << name_of(format.dtype) << " code " << code;
      EXPECT_EQ(std::signbit(value), std::signbit(expected)) << name_of(format.dtype) << " code " << code;
      EXPECT_FALSE(format.is_nan(code));
      EXPECT_EQ(format.is_inf(code), std::isinf(expected));
    }
    std::printf("%-14s %d codes, %d NaN\n", std::string(name_of(format.dtype)).c_str(), 1 << format.bits(), nans);
  }
}

TEST(Formats, EveryCodeSurvivesDecodeAndEncode) {
  for (const FormatInfo& format : kFormats) {
    for (Overflow overflow : {Overflow::kSaturate, Overflow::kNonFinite}) {
      for (uint32_t code = 0; code < 1u << format.bits(); ++code) {
        const uint32_t again = encode(format.dtype, decode(format.dtype, code), overflow);
        if (format.is_nan(code)) {
          EXPECT_TRUE(format.is_nan(again)) << name_of(format.dtype) << " code " << code;
        } else if (format.is_inf(code) && overflow == Overflow::kSaturate) {
          EXPECT_EQ(again, code - 1) << name_of(format.dtype);
        } else {
          EXPECT_EQ(again, code) << name_of(format.dtype);
        }
      }
    }
  }
}

TEST(Formats, DecodeTablesEqualTheScalarRule) {
  for (const FormatInfo& format : kFormats) {
    const uint32_t* bits = decode_table_bits(format.dtype);
    const float* values = decode_table(format.dtype);
    if (format.bits() > 8) {
      EXPECT_EQ(bits, nullptr);
      EXPECT_EQ(values, nullptr);
      continue;
    }
    for (uint32_t code = 0; code < 1u << format.bits(); ++code) {
      EXPECT_EQ(bits[code], decode_bits(format, code));
      EXPECT_EQ(std::bit_cast<uint32_t>(values[code]), bits[code]);
    }
  }
}

TEST(Formats, ConstantsAreThePublishedOnes) {
  EXPECT_EQ(max_finite(DType::kE4M3FN), 448.0f);
  EXPECT_EQ(max_finite(DType::kE5M2), 57344.0f);
  EXPECT_EQ(max_finite(DType::kE4M3FNUZ), 240.0f);
  EXPECT_EQ(max_finite(DType::kE5M2FNUZ), 57344.0f);
  EXPECT_EQ(max_finite(DType::kE2M1), 6.0f);
  EXPECT_EQ(max_finite(DType::kE2M3), 7.5f);
  EXPECT_EQ(max_finite(DType::kE3M2), 28.0f);
  EXPECT_EQ(max_finite(DType::kE8M0), 0x1p127f);
  EXPECT_EQ(max_finite(DType::kF16), 65504.0f);
  EXPECT_EQ(max_finite(DType::kBF16), 0x1.FEp127f);
  EXPECT_EQ(min_normal(DType::kE4M3FN), 0x1p-6f);
  EXPECT_EQ(min_normal(DType::kE5M2), 0x1p-14f);
  EXPECT_EQ(min_normal(DType::kE4M3FNUZ), 0x1p-7f);
  EXPECT_EQ(min_normal(DType::kE5M2FNUZ), 0x1p-15f);
  EXPECT_EQ(min_normal(DType::kE2M1), 1.0f);
  EXPECT_EQ(min_subnormal(DType::kE4M3FN), 0x1p-9f);
  EXPECT_EQ(min_subnormal(DType::kE5M2), 0x1p-16f);
  EXPECT_EQ(min_subnormal(DType::kE4M3FNUZ), 0x1p-10f);
  EXPECT_EQ(min_subnormal(DType::kE5M2FNUZ), 0x1p-17f);
  EXPECT_EQ(min_subnormal(DType::kE2M1), 0.5f);
  EXPECT_EQ(std::bit_cast<uint32_t>(decode(DType::kE8M0, 0)), 0x00400000u);
}

// All finite values of a format, non-negative ones, with their codes: what a nearest search runs over.
struct Candidate {
  double value;
  uint32_t code;
};

std::vector<Candidate> candidates_of(DType dtype) {
  const FormatInfo& format = format_info(dtype);
  std::vector<Candidate> found;
  for (uint32_t code = 0; code <= format.max_code; ++code) found.push_back({defined_value(dtype, code), code});
  // The value that would follow, were there one more code: what an overflow is rounded against.
  const double last = found.back().value, step = last - found[found.size() - 2].value;
  found.push_back({last + step, format.max_code + 1});
  return found;
}

// Nearest by trying every candidate; a tie takes the even code.
uint32_t slow_nearest(const std::vector<Candidate>& candidates, double magnitude) {
  if (magnitude >= candidates.back().value) return candidates.back().code;
  const Candidate* best = &candidates.front();
  for (const Candidate& candidate : candidates) {
    const double distance = std::fabs(candidate.value - magnitude), least = std::fabs(best->value - magnitude);
    if (distance < least || (distance == least && candidate.code % 2 == 0)) best = &candidate;
  }
  return best->code;
}

TEST(Formats, EncodeOfEveryBf16ValueIsTheNearestEven) {
  for (DType dtype : kSigned) {
    const FormatInfo& format = format_info(dtype);
    if (format.bits() > 8) continue;
    const auto candidates = candidates_of(dtype);
    for (uint32_t upper = 0; upper < 65536; ++upper) {
      const float value = f32_from_bf16(static_cast<uint16_t>(upper));
      const uint32_t saturated = encode(dtype, value, Overflow::kSaturate);
      const uint32_t open = encode(dtype, value, Overflow::kNonFinite);
      if (std::isnan(value)) {
        if (format.has_nan()) {
          EXPECT_TRUE(format.is_nan(saturated) && format.is_nan(open)) << upper;
        } else {
          EXPECT_EQ(saturated, format.max_code);
        }
        continue;
      }
      const uint32_t nearest = std::isinf(value) ? format.max_code + 1 : slow_nearest(candidates, std::fabs(value));
      uint32_t sign = std::signbit(value) ? format.sign_mask() : 0;
      if (format.specials == Specials::kFnuz && nearest == 0) sign = 0;
      ASSERT_EQ(saturated, sign | std::min(nearest, format.max_code)) << name_of(dtype) << " of " << value;
      if (nearest <= format.max_code) {
        ASSERT_EQ(open, saturated) << name_of(dtype) << " of " << value;
      } else if (format.has_inf()) {
        ASSERT_EQ(open, sign | (format.max_code + 1)) << name_of(dtype) << " of " << value;
      } else if (format.has_nan()) {
        ASSERT_TRUE(format.is_nan(open)) << name_of(dtype) << " of " << value;
      } else {
        ASSERT_EQ(open, saturated);
      }
    }
  }
}

// FP32 neighbours of every tie: what a rounding that looks at too few bits gets wrong.
TEST(Formats, EveryTieAndItsNeighboursRoundCorrectly) {
  for (DType dtype : kSigned) {
    const FormatInfo& format = format_info(dtype);
    const auto candidates = candidates_of(dtype);
    for (size_t i = 0; i + 1 < candidates.size(); ++i) {
      const float middle = static_cast<float>((candidates[i].value + candidates[i + 1].value) / 2);
      ASSERT_EQ(middle, (candidates[i].value + candidates[i + 1].value) / 2);
      const uint32_t below = candidates[i].code, above = std::min(candidates[i + 1].code, format.max_code);
      const uint32_t tie = std::min(below % 2 == 0 ? below : candidates[i + 1].code, format.max_code);
      for (float sign : {1.0f, -1.0f}) {
        const uint32_t bit = sign < 0 ? format.sign_mask() : 0;
        const auto with_sign = [&](uint32_t code) {
          return format.specials == Specials::kFnuz && code == 0 ? 0 : bit | code;
        };
        EXPECT_EQ(encode(dtype, sign * middle, Overflow::kSaturate), with_sign(tie)) << name_of(dtype) << " " << middle;
        EXPECT_EQ(encode(dtype, sign * std::nextafter(middle, 0.0f), Overflow::kSaturate), with_sign(below));
        EXPECT_EQ(encode(dtype, sign * std::nextafter(middle, kInf), Overflow::kSaturate), with_sign(above));
      }
    }
  }
}

TEST(Formats, OverflowEdges) {
  struct Edge {
    DType format;
    float value;
    uint32_t saturated, open;
  };
  const Edge edges[] = {
      {DType::kE4M3FN, 448.0f, 0x7E, 0x7E},
      {DType::kE4M3FN, 464.0f, 0x7E, 0x7E},
      {DType::kE4M3FN, 465.0f, 0x7E, 0x7F},
      {DType::kE4M3FN, 480.0f, 0x7E, 0x7F},
      {DType::kE4M3FN, kInf, 0x7E, 0x7F},
      {DType::kE4M3FN, -449.0f, 0xFE, 0xFE},
      {DType::kE4M3FN, -1e30f, 0xFE, 0xFF},
      {DType::kE5M2, 57344.0f, 0x7B, 0x7B},
      {DType::kE5M2, 61439.0f, 0x7B, 0x7B},
      {DType::kE5M2, 61440.0f, 0x7B, 0x7C},
      {DType::kE5M2, -61440.0f, 0xFB, 0xFC},
      {DType::kE5M2, -kInf, 0xFB, 0xFC},
      {DType::kE4M3FNUZ, 240.0f, 0x7F, 0x7F},
      {DType::kE4M3FNUZ, 247.9f, 0x7F, 0x7F},
      {DType::kE4M3FNUZ, 248.0f, 0x7F, 0x80},
      {DType::kE4M3FNUZ, -248.0f, 0xFF, 0x80},
      {DType::kE5M2FNUZ, 57344.0f, 0x7F, 0x7F},
      {DType::kE5M2FNUZ, 61439.0f, 0x7F, 0x7F},
      {DType::kE5M2FNUZ, 61440.0f, 0x7F, 0x80},
      {DType::kE2M1, 7.0f, 0x7, 0x7},
      {DType::kE2M1, -kInf, 0xF, 0xF},
      {DType::kF16, 65519.0f, 0x7BFF, 0x7BFF},
      {DType::kF16, 65520.0f, 0x7BFF, 0x7C00},
      {DType::kBF16, 0x1.FFp127f, 0x7F7F, 0x7F80},
      {DType::kBF16, 0x1.FEFFFEp127f, 0x7F7F, 0x7F7F},
  };
  for (const Edge& edge : edges) {
    EXPECT_EQ(encode(edge.format, edge.value, Overflow::kSaturate), edge.saturated) << edge.value;
    EXPECT_EQ(encode(edge.format, edge.value, Overflow::kNonFinite), edge.open) << edge.value;
  }
}

TEST(Formats, FnuzHasNoMinusZero) {
  for (DType dtype : {DType::kE4M3FNUZ, DType::kE5M2FNUZ}) {
    EXPECT_EQ(encode_fp8(dtype, -0.0f), 0);
    EXPECT_EQ(encode_fp8(dtype, -1e-6f), 0);
    EXPECT_EQ(encode_fp8(dtype, kNan), 0x80);
    EXPECT_EQ(encode_fp8(dtype, -kNan), 0x80);
  }
  for (DType dtype : {DType::kE4M3FN, DType::kE5M2}) EXPECT_EQ(encode_fp8(dtype, -0.0f), 0x80);
}

TEST(Formats, E8m0RoundsUpAndHasNoZero) {
  const auto encoded = [](float value) { return encode_fp8(DType::kE8M0, value); };
  EXPECT_EQ(encoded(1.0f), 127);
  EXPECT_EQ(encoded(std::nextafter(1.0f, 2.0f)), 128);
  EXPECT_EQ(encoded(0x1p-127f), 0);
  EXPECT_EQ(encoded(std::nextafter(0x1p-127f, 1.0f)), 1);
  EXPECT_EQ(encoded(0x1p-126f), 1);
  EXPECT_EQ(encoded(0.0f), 0);
  EXPECT_EQ(encoded(0x1p-149f), 0);
  EXPECT_EQ(encoded(0x1p127f), 254);
  EXPECT_EQ(encoded(0x1.8p127f), 254);
  EXPECT_EQ(encoded(kInf), 254);
  EXPECT_EQ(encode_fp8(DType::kE8M0, kInf, Overflow::kNonFinite), 255);
  EXPECT_EQ(encoded(kNan), 255);
  EXPECT_EQ(encoded(-1.0f), 255);
  // Every BF16 value against the least power of two that is not below it.
  for (uint32_t upper = 0; upper < 0x7F80; ++upper) {
    const float value = f32_from_bf16(static_cast<uint16_t>(upper));
    int code = 0;
    while (code < 254 && std::ldexp(1.0, code - 127) < static_cast<double>(value)) ++code;
    ASSERT_EQ(encoded(value), code) << value;
  }
}

TEST(Formats, Bf16RoundsToNearestEvenAndKeepsSpecials) {
  // Three dropped halves (below, at and above the tie) around every finite value.
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    const uint16_t bits = static_cast<uint16_t>(upper);
    EXPECT_EQ(bf16_from_f32(f32_from_bf16(bits)) & ~0x40u, bits & ~0x40u);
    if ((upper & 0x7FFF) >= 0x7F80) continue;
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const uint32_t expected = upper + (low > 0x8000u || (low == 0x8000u && (upper & 1u) != 0) ? 1 : 0);
      const float value = std::bit_cast<float>(upper << 16 | low);
      ASSERT_EQ(bf16_from_f32(value), expected);
      ASSERT_EQ(encode(DType::kBF16, value, Overflow::kNonFinite), expected);
      ASSERT_EQ(bf16_from_f64(static_cast<double>(value)), expected);
    }
  }
  EXPECT_EQ(bf16_from_f32(-0.0f), 0x8000);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7F800001u)), 0x7FC0);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0xFFA50000u)), 0xFFE5);
  EXPECT_EQ(bf16_from_f64(-0.0), 0x8000);
  EXPECT_EQ(bf16_from_f64(1e300), 0x7F80);
  EXPECT_EQ(bf16_from_f64(-HUGE_VAL), 0xFF80);
  EXPECT_EQ(bf16_from_f64(NAN) & 0x7FC0, 0x7FC0);
}

TEST(Formats, Bf16FromF64RoundsOnce) {
  // 1 + 2^-8 + 2^-40 is above a BF16 tie but equals the tie once rounded to FP32.
  const double value = 1.0 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(bf16_from_f32(static_cast<float>(value)), 0x3F80);
  EXPECT_EQ(bf16_from_f64(value), 0x3F81);
}

TEST(Formats, EveryF16CodeSurvives) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const uint16_t bits = static_cast<uint16_t>(code);
    const uint16_t again = f16_from_f32(f32_from_f16(bits));
    if ((code & 0x7FFF) > 0x7C00) {
      EXPECT_EQ(again, bits | 0x200);
    } else {
      EXPECT_EQ(again, bits);
    }
  }
}

TEST(Formats, LookupKnowsWhatHasNoLine) {
  EXPECT_EQ(find_format(DType::kF32), nullptr);
  EXPECT_EQ(find_format(DType::kU8), nullptr);
  EXPECT_EQ(find_format(DType::kUnspecified), nullptr);
  for (DType dtype : kEightBit) EXPECT_EQ(format_info(dtype).bits(), 8);
}

}  // namespace
}  // namespace invar
