// Every level against the scalar rule: all codes, odd scales, every length and alignment.
#include "core/numerics/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/base/rng.h"
#include "core/numerics/fp_mode.h"
#include "core/numerics/normal.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr DType kFormats8[] = {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ};

std::vector<float> scales_to_try() {
  std::vector<float> scales = {1.0f,      -1.0f,     0.0f,     -0.0f,    0x1p-127f, 0x1p-126f,
                               0x1p-149f, 0x1p-100f, 0x1p100f, 0x1p127f, 0x1.8p99f, 3.4e38f,
                               kInf,      kNan,      1e-40f,   1e-37f,   0x1p-110f, 0x1p-117f,
                               1e-4f,     0.00313f,  1.0f / 3, 448.0f,   7.1f,      0x1.FFFFFEp-3f};
  for (uint64_t i = 0; i < 40; ++i) {
    scales.push_back(std::bit_cast<float>(philox4x32(7, i, 0)[0] & 0x7FFFFFFFu));
    scales.push_back(std::exp(normal_at(3, 1, i) * 4 - 6));
  }
  return scales;
}

// All 256 codes, twice in different order, so that NaN codes meet chunks of every kind.
std::vector<uint8_t> all_codes() {
  std::vector<uint8_t> codes;
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<uint8_t>(code));
  for (int code = 0; code < 256; ++code) codes.push_back(static_cast<uint8_t>(code * 37 + 11));
  // NaN-free stretch: the fast path proper, for any format.
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (int code = 0; code < 128; ++code) {
      const uint8_t byte = static_cast<uint8_t>(code % 0x7B);
      codes.push_back(byte);
      codes.push_back(byte == 0 ? 0 : static_cast<uint8_t>(byte | 0x80));
    }
  }
  return codes;
}

std::vector<uint8_t> random_codes(int64_t count, uint64_t seed, DType without_nan) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    codes[i] = static_cast<uint8_t>(philox4x32(seed, static_cast<uint64_t>(i), 0)[0]);
    if (format_info(without_nan).is_nan(codes[i])) codes[i] = 0x11;
  }
  return codes;
}

bool both_nan_or_equal(float left, float right) {
  return std::bit_cast<uint32_t>(left) == std::bit_cast<uint32_t>(right);
}

class EveryLevel : public testing::TestWithParam<CpuLevel> {};
INSTANTIATE_TEST_SUITE_P(Codec, EveryLevel, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& info) { return std::string(cpu_level_name(info.param)); });

TEST_P(EveryLevel, Fp8ToBf16EqualsTheRuleForAllCodesAndScales) {
  const auto codes = all_codes();
  const auto count = static_cast<int64_t>(codes.size());
  for (DType format : kFormats8) {
    for (float scale : scales_to_try()) {
      for (Store store : {Store::kCached, Store::kStreaming}) {
        std::vector<uint16_t> out(codes.size());
        convert_fp8_to_bf16(format, codes.data(), out.data(), count, scale, store, GetParam());
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], bf16_from_fp8(format, codes[i], scale))
              << name_of(format) << " code " << int{codes[i]} << " scale " << scale;
        }
      }
    }
  }
}

TEST_P(EveryLevel, Fp8ToF32AndF16EqualTheRule) {
  const auto codes = all_codes();
  const auto count = static_cast<int64_t>(codes.size());
  for (DType format : kFormats8) {
    for (float scale : scales_to_try()) {
      std::vector<float> wide(codes.size());
      std::vector<uint16_t> half(codes.size());
      convert_fp8_to_f32(format, codes.data(), wide.data(), count, scale, GetParam());
      convert_fp8_to_f16(format, codes.data(), half.data(), count, scale, GetParam());
      for (int64_t i = 0; i < count; ++i) {
        const float value = decode(format, codes[i]);
        const float expected = std::isnan(value) ? value : value * scale;
        ASSERT_TRUE(both_nan_or_equal(wide[i], expected)) << name_of(format) << " " << int{codes[i]} << " " << scale;
        ASSERT_EQ(half[i], f16_from_f32(expected)) << name_of(format) << " " << int{codes[i]} << " " << scale;
      }
    }
  }
}

// Bytes around the output must stay as they were.
TEST_P(EveryLevel, EveryLengthAndAlignmentStaysInsideItsSpan) {
  for (DType format : kFormats8) {
    for (int64_t count = 0; count <= 200; ++count) {
      const int64_t offset = count % 37;
      const auto codes = random_codes(count + offset, 5 + static_cast<uint64_t>(count), format);
      for (Store store : {Store::kCached, Store::kStreaming}) {
        std::vector<uint16_t> out(static_cast<size_t>(count + offset + 1), 0xABCD);
        convert_fp8_to_bf16(format, codes.data() + offset, out.data() + offset, count, 0.37f, store, GetParam());
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[offset + i], bf16_from_fp8(format, codes[offset + i], 0.37f)) << count;
        }
        for (int64_t i = 0; i < offset; ++i) ASSERT_EQ(out[i], 0xABCD);
        ASSERT_EQ(out.back(), 0xABCD);
      }
      std::vector<float> wide(static_cast<size_t>(count + offset + 1), 7.0f);
      convert_fp8_to_f32(format, codes.data() + offset, wide.data() + offset, count, 1, GetParam());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(wide[offset + i], decode(format, codes[offset + i]));
      ASSERT_EQ(wide.back(), 7.0f);
      // And back: decoding is exact, so encoding returns every code (-0 of FNUZ excluded above as NaN).
      std::vector<uint8_t> again(static_cast<size_t>(count + offset + 1), 0x5A);
      convert_f32_to_fp8(format, wide.data() + offset, again.data() + offset, count, 1, Apply::kMultiply, GetParam());
      for (int64_t i = 0; i < count; ++i) {
        if (format_info(format).is_inf(codes[offset + i])) continue;
        ASSERT_EQ(again[offset + i], codes[offset + i]);
      }
      ASSERT_EQ(again.back(), 0x5A);
    }
  }
}

TEST_P(EveryLevel, RowSegmentsTakeTheirOwnScale) {
  for (int64_t segment : {1, 16, 32, 100, 128}) {
    for (int64_t count : {0, 1, 31, 128, 200, 1000}) {
      const auto codes = random_codes(count, 77, DType::kE4M3FN);
      std::vector<float> scales;
      for (int64_t start = 0; start < count; start += segment) scales.push_back(0.001f * static_cast<float>(start + 1));
      std::vector<uint16_t> out(static_cast<size_t>(count));
      convert_fp8_row_to_bf16(DType::kE4M3FN, codes.data(), out.data(), count, scales.data(), segment, Store::kCached,
                              GetParam());
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(out[i], bf16_from_fp8(DType::kE4M3FN, codes[i], scales[i / segment]));
      }
    }
  }
}

// FP32 inputs that matter: every BF16 value, and both sides of its rounding edges.
std::vector<float> hard_floats() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      values.push_back(std::bit_cast<float>(upper << 16 | low));
    }
  }
  return values;
}

TEST_P(EveryLevel, PiecesOfRowsMayBeginInsideASegment) {
  for (DType format : kFormats8) {
    const auto codes = random_codes(300, 5, format);
    std::vector<float> scales(301);
    for (size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<float>(i + 1) * (i % 7 == 5 ? 0x1p-99f : 0x1p-9f);
    for (int64_t segment : {1, 5, 32, 64, 128, 4096}) {
      for (int64_t first : {int64_t{1}, int64_t{3}, segment}) {
        if (first > segment) continue;
        for (int64_t count : {0, 1, 31, 32, 33, 95, 96, 128, 300}) {
          SCOPED_TRACE(testing::Message()
                       << name_of(format) << " segment " << segment << " first " << first << " of " << count);
          std::vector<uint16_t> bf16(static_cast<size_t>(count) + 1, 0xABCD), f16 = bf16;
          std::vector<float> f32(static_cast<size_t>(count) + 1, -7.0f);
          const auto convert = [&](DType to, void* out) {
            convert_fp8_row(format, codes.data(), to, out, count, scales.data(), first, segment, GetParam());
          };
          convert(DType::kBF16, bf16.data());
          convert(DType::kF16, f16.data());
          convert(DType::kF32, f32.data());
          for (int64_t i = 0; i < count; ++i) {
            const auto at = static_cast<size_t>(i);
            const float scale = scales[static_cast<size_t>(i < first ? 0 : 1 + (i - first) / segment)];
            const float product = decode(format, codes[at]) * scale;
            ASSERT_EQ(bf16[at], bf16_from_f32(product)) << i;
            ASSERT_EQ(f16[at], f16_from_f32(product)) << i;
            ASSERT_TRUE(both_nan_or_equal(f32[at], product)) << i;
          }
          ASSERT_EQ(bf16.back(), 0xABCD) << "wrote behind the row";
          ASSERT_EQ(f16.back(), 0xABCD) << "wrote behind the row";
          ASSERT_EQ(f32.back(), -7.0f) << "wrote behind the row";
        }
      }
    }
  }
}

TEST_P(EveryLevel, Fp8EncodersEqualTheScalarRule) {
  const auto values = hard_floats();
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint8_t> codes(values.size());
  for (DType format : kFormats8) {
    for (float factor : {1.0f, 0.0123f, 300.0f, 0x1p-130f, 0.0f}) {
      for (Apply apply : {Apply::kMultiply, Apply::kDivide}) {
        convert_f32_to_fp8(format, values.data(), codes.data(), count, factor, apply, GetParam());
        for (int64_t i = 0; i < count; ++i) {
          const float scaled = apply == Apply::kMultiply ? values[i] * factor : values[i] / factor;
          ASSERT_EQ(codes[i], encode_fp8(format, scaled)) << name_of(format) << " " << values[i] << " " << factor;
        }
      }
    }
  }
}

TEST_P(EveryLevel, Bf16ToFp8EqualsTheScalarRuleForEveryBf16Value) {
  std::vector<uint16_t> values(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) values[bits] = static_cast<uint16_t>(bits);
  std::vector<uint8_t> codes(65536);
  for (DType format : kFormats8) {
    convert_bf16_to_fp8(format, values.data(), codes.data(), 65536, 3.7f, Apply::kDivide, GetParam());
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      ASSERT_EQ(codes[bits], encode_fp8(format, f32_from_bf16(values[bits]) / 3.7f)) << bits;
    }
  }
}

TEST_P(EveryLevel, WideConversionsEqualTheScalarRule) {
  const auto values = hard_floats();
  const auto count = static_cast<int64_t>(values.size());
  std::vector<uint16_t> bf16(values.size()), f16(values.size());
  convert_f32_to_bf16(values.data(), bf16.data(), count, GetParam());
  convert_f32_to_f16(values.data(), f16.data(), count, GetParam());
  for (int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(bf16[i], bf16_from_f32(values[i])) << std::bit_cast<uint32_t>(values[i]);
    ASSERT_EQ(f16[i], f16_from_f32(values[i])) << std::bit_cast<uint32_t>(values[i]);
  }
  std::vector<uint16_t> bits(65536);
  for (uint32_t i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
  std::vector<float> wide(65536);
  convert_bf16_to_f32(bits.data(), wide.data(), 65536, GetParam());
  for (uint32_t i = 0; i < 65536; ++i) ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), i << 16);
  convert_f16_to_f32(bits.data(), wide.data(), 65536, GetParam());
  for (uint32_t i = 0; i < 65536; ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(f32_from_f16(bits[i]))) << i;
  }
}

TEST_P(EveryLevel, WideConversionsTakeEveryLength) {
  for (int64_t count = 0; count <= 200; ++count) {
    std::vector<float> values(static_cast<size_t>(count) + 3);
    for (size_t i = 0; i < values.size(); ++i) values[i] = normal_at(1, 2, i);
    const int64_t offset = count % 3;
    std::vector<uint16_t> bf16(values.size() + 1, 0xABCD), f16(values.size() + 1, 0xABCD);
    convert_f32_to_bf16(values.data() + offset, bf16.data() + offset, count, GetParam());
    convert_f32_to_f16(values.data() + offset, f16.data() + offset, count, GetParam());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(bf16[offset + i], bf16_from_f32(values[offset + i]));
      ASSERT_EQ(f16[offset + i], f16_from_f32(values[offset + i]));
    }
    ASSERT_EQ(bf16[offset + count], 0xABCD);
    ASSERT_EQ(f16[offset + count], 0xABCD);
    float most = 0, most_rounded = 0;
    for (int64_t i = 0; i < count; ++i) {
      most = std::max(most, std::fabs(values[offset + i]));
      most_rounded = std::max(most_rounded, std::fabs(f32_from_bf16(bf16[offset + i])));
    }
    EXPECT_EQ(std::bit_cast<float>(amax_bits_f32(values.data() + offset, count, GetParam())), most);
    EXPECT_EQ(std::bit_cast<float>(amax_bits_bf16(bf16.data() + offset, count, GetParam())), most_rounded);
  }
}

TEST_P(EveryLevel, AmaxShowsNonFiniteValuesWhereverTheyLie) {
  for (float bad : {kInf, -kInf, kNan, -kNan}) {
    for (int64_t at = 0; at < 150; ++at) {
      std::vector<float> values(150, 1.0f);
      values[at] = bad;
      EXPECT_GE(amax_bits_f32(values.data(), 150, GetParam()), 0x7F800000u);
    }
  }
}

TEST_P(EveryLevel, CountsEqualThoseOfOneCodeAtATime) {
  for (DType format : kFormats8) {
    const FormatInfo& info = format_info(format);
    const auto codes = all_codes();
    for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{200}, static_cast<int64_t>(codes.size())}) {
      Fp8Counts expected;
      for (int64_t i = 0; i < count; ++i) {
        const float value = std::fabs(decode(format, codes[i]));
        if (std::isnan(value)) {
          ++expected.nan;
        } else if (std::isinf(value)) {
          ++expected.infinite;
        } else {
          expected.zero += value == 0;
          expected.saturated += value == max_finite(format);
          expected.max_magnitude = std::max(expected.max_magnitude, codes[i] & info.magnitude_mask());
        }
      }
      Fp8Counts counts;
      count_codes(format, codes.data(), count, counts, GetParam());
      EXPECT_EQ(counts, expected) << name_of(format) << " " << count;
    }
  }
}

#if defined(__x86_64__)
// A host built with -ffast-math runs with subnormals off; another may round down.
TEST_P(EveryLevel, TheHostsFloatingPointModeChangesNothingAndIsKept) {
  const auto codes = all_codes();
  const auto count = static_cast<int64_t>(codes.size());
  const uint32_t host = _mm_getcsr();
  for (uint32_t mode : {0x9FC0u, 0x3F80u, 0x5F80u}) {  // FTZ + DAZ, round down, round up
    for (DType format : kFormats8) {
      for (float scale : {0x1p-127f, 1e-40f, 1e-36f, 0.3f}) {
        std::vector<uint16_t> expected(codes.size()), out(codes.size());
        for (int64_t i = 0; i < count; ++i) expected[i] = bf16_from_fp8(format, codes[i], scale);
        _mm_setcsr(mode);
        convert_fp8_to_bf16(format, codes.data(), out.data(), count, scale, Store::kCached, GetParam());
        const uint32_t after = _mm_getcsr();
        _mm_setcsr(host);
        EXPECT_EQ(after & ~0x3Fu, mode & ~0x3Fu);
        ASSERT_EQ(out, expected) << name_of(format) << " scale " << scale;
      }
    }
    const uint8_t code = 0;
    float value = 1;
    _mm_setcsr(mode);
    convert_to_f32(DType::kE8M0, &code, &value, 1, GetParam());
    _mm_setcsr(host);
    EXPECT_EQ(std::bit_cast<uint32_t>(value), 0x00400000u);
  }
}
#endif

TEST(Codec, OnceRoundedProductsDifferFromTheDefaultOnlyWhereThatRoundsTwice) {
  // The eight significands of E4M3 and scales of 24 random bits: about one product in 400 000 is rounded twice.
  int64_t differ = 0, total = 0;
  for (uint64_t i = 0; i < 400000; ++i) {
    const float scale = std::bit_cast<float>(0x3F800000u | philox4x32(7, i, 0)[0] >> 9);
    for (uint8_t code = 0x38; code < 0x40; ++code) {
      const uint16_t once = bf16_from_fp8(DType::kE4M3FN, code, scale, ProductRounding::kOnce);
      const uint16_t twice = bf16_from_fp8(DType::kE4M3FN, code, scale);
      ASSERT_LE(std::abs(once - twice), 1);
      differ += once != twice;
      ++total;
    }
  }
  std::printf("rounding twice moves %lld of %lld products\n", static_cast<long long>(differ),
              static_cast<long long>(total));
  EXPECT_GT(differ, 0);
  EXPECT_LT(static_cast<double>(differ) / static_cast<double>(total), 1e-5);
}

TEST(Codec, OnceRoundedSpansEqualTheRule) {
  const auto codes = all_codes();
  std::vector<uint16_t> out(codes.size());
  for (DType format : kFormats8) {
    for (float scale : scales_to_try()) {
      convert_fp8_to_bf16_once(format, codes.data(), out.data(), static_cast<int64_t>(codes.size()), scale);
      for (size_t i = 0; i < codes.size(); ++i) {
        ASSERT_EQ(out[i], bf16_from_fp8(format, codes[i], scale, ProductRounding::kOnce));
      }
    }
  }
}

TEST(Codec, HalfRangeCountsWhatFp16Loses) {
  const uint8_t codes[] = {0x7E, 0x01, 0x38, 0x00, 0x7F};  // 448, 2^-9, 1, 0, NaN
  uint16_t out[5];
  convert_fp8_to_f16(DType::kE4M3FN, codes, out, 5, 200.0f);
  HalfCounts counts;
  count_half_range(DType::kE4M3FN, codes, out, 5, counts);
  EXPECT_EQ(counts.overflowed, 1);
  EXPECT_EQ(counts.underflowed, 0);
  convert_fp8_to_f16(DType::kE4M3FN, codes, out, 5, 1e-4f);
  count_half_range(DType::kE4M3FN, codes, out, 5, counts);
  EXPECT_EQ(counts.overflowed, 1);
  EXPECT_EQ(counts.underflowed, 1);
}

TEST(Codec, GenericConversionsKnowEveryFloatingFormatAndNoOther) {
  const float values[5] = {0.0f, 1.0f, -1.5f, 3.0f, 6.0f};
  for (DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16, DType::kE4M3FN, DType::kE5M2,
                      DType::kE4M3FNUZ, DType::kE5M2FNUZ, DType::kE2M1}) {
    alignas(8) uint8_t stored[64];
    float back[5] = {};
    ASSERT_TRUE(convert_from_f32(dtype, values, stored, 5)) << name_of(dtype);
    ASSERT_TRUE(convert_to_f32(dtype, stored, back, 5));
    for (int i = 0; i < 5; ++i) EXPECT_EQ(back[i], values[i]) << name_of(dtype);
  }
  uint8_t bytes[5] = {0, 1, 127, 254, 255};
  float back[5];
  ASSERT_TRUE(convert_to_f32(DType::kE8M0, bytes, back, 5));
  EXPECT_EQ(back[0], 0x1p-127f);
  EXPECT_EQ(back[2], 1.0f);
  EXPECT_TRUE(std::isnan(back[4]));
  uint8_t again[5];
  ASSERT_TRUE(convert_from_f32(DType::kE8M0, back, again, 5));
  EXPECT_EQ(0, std::memcmp(again, bytes, 5));
  EXPECT_FALSE(convert_to_f32(DType::kU8, bytes, back, 5));
  EXPECT_FALSE(convert_from_f32(DType::kI32, values, bytes, 1));
}

TEST(Codec, PackedE2m1HoldsTheEvenElementInTheLowNibble) {
  const float values[3] = {0.5f, -6.0f, 1.0f};
  uint8_t packed[2] = {0xFF, 0xFF};
  ASSERT_TRUE(convert_from_f32(DType::kE2M1, values, packed, 3));
  EXPECT_EQ(packed[0], 0xF1);
  EXPECT_EQ(packed[1], 0x02);
}

}  // namespace
}  // namespace invar
