#include "core/numerics/stochastic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr DType kAll[] = {DType::kBF16,     DType::kF16,      DType::kE4M3FN, DType::kE5M2,
                          DType::kE4M3FNUZ, DType::kE5M2FNUZ, DType::kE2M1};

TEST(Stochastic, ExactValuesNeverMove) {
  for (DType dtype : kAll) {
    const FormatInfo& format = format_info(dtype);
    for (uint32_t code = 0; code < 1u << format.bits(); ++code) {
      if (format.is_nan(code) || (format.is_inf(code) && format.bits() <= 8)) continue;
      for (uint32_t random : {0u, 1u, 0x80000000u, 0xFFFFFFFFu}) {
        ASSERT_EQ(encode_stochastic(dtype, decode(dtype, code), random), code) << name_of(dtype);
      }
    }
  }
}

// The count of random numbers that round up is the fraction itself: swept, not sampled.
TEST(Stochastic, ProbabilityOfRoundingUpIsTheFraction) {
  for (DType dtype : kAll) {
    const FormatInfo& format = format_info(dtype);
    for (uint32_t code = 0; code + 1 <= format.max_code; code += format.bits() > 8 ? 997 : 1) {
      const double low = decode(dtype, code), high = decode(dtype, code + 1);
      for (int quarter = 1; quarter < 4; ++quarter) {
        const float value = static_cast<float>(low + (high - low) * quarter / 4);
        ASSERT_EQ(static_cast<double>(value), low + (high - low) * quarter / 4);
        const uint32_t edge = static_cast<uint32_t>(quarter) << 30;
        EXPECT_EQ(encode_stochastic(dtype, value, edge - 1), code + 1) << name_of(dtype) << " " << value;
        EXPECT_EQ(encode_stochastic(dtype, value, edge), code) << name_of(dtype) << " " << value;
        const uint32_t sign = format.sign_mask();
        EXPECT_EQ(encode_stochastic(dtype, -value, edge - 1), sign | (code + 1));
        const bool unsigned_zero = format.specials == Specials::kFnuz && code == 0;
        EXPECT_EQ(encode_stochastic(dtype, -value, edge), unsigned_zero ? 0 : sign | code);
      }
    }
  }
}

TEST(Stochastic, SpecialsAndOverflow) {
  EXPECT_TRUE(std::isnan(decode(DType::kBF16, encode_stochastic(DType::kBF16, NAN, 5))));
  EXPECT_EQ(encode_stochastic(DType::kBF16, -kInf, 0), 0xFF80u);
  EXPECT_EQ(encode_stochastic(DType::kE4M3FN, 1e9f, 0), 0x7Eu);
  EXPECT_EQ(encode_stochastic(DType::kE4M3FN, 449.0f, 0), 0x7Eu);
  EXPECT_EQ(encode_stochastic(DType::kE5M2, -kInf, 0), 0xFBu);
  EXPECT_EQ(encode_stochastic(DType::kF16, 65505.0f, 0), 0x7C00u);
  EXPECT_EQ(encode_stochastic(DType::kF16, 65505.0f, 0xFFFFFFFFu), 0x7BFFu);
  // Far below the smallest subnormal nearly always zero, and never wrong.
  EXPECT_EQ(encode_stochastic(DType::kE4M3FN, 0x1p-140f, 0), 0u);
  EXPECT_EQ(encode_stochastic(DType::kE4M3FN, 0x1p-41f, 0), 1u);
  EXPECT_EQ(encode_stochastic(DType::kE4M3FN, 0x1p-41f, 1), 0u);
}

TEST(Stochastic, MeanOfManyDrawsIsTheValue) {
  const int64_t draws = 1 << 17;
  for (float value : {1.001f, 0.3f, -1.7f, 3.14159f}) {
    const std::vector<float> in(static_cast<size_t>(draws), value);
    std::vector<uint16_t> bf16(in.size()), f16(in.size());
    std::vector<uint8_t> fp8(in.size());
    const StochasticKey key{42, 7};
    convert_f32_to_bf16_stochastic(in.data(), bf16.data(), draws, key, 0);
    convert_f32_to_f16_stochastic(in.data(), f16.data(), draws, key, 0);
    convert_f32_to_fp8_stochastic(DType::kE4M3FN, in.data(), fp8.data(), draws, 1, key, 0);
    double sum_bf16 = 0, sum_f16 = 0, sum_fp8 = 0;
    for (int64_t i = 0; i < draws; ++i) {
      sum_bf16 += f32_from_bf16(bf16[i]);
      sum_f16 += f32_from_f16(f16[i]);
      sum_fp8 += decode(DType::kE4M3FN, fp8[i]);
    }
    // Standard error at most half a unit / sqrt(draws); five of them.
    const double root = std::sqrt(static_cast<double>(draws)), size = std::fabs(value);
    EXPECT_NEAR(sum_bf16 / draws, value, 5 * size * 0x1p-8 / root);
    EXPECT_NEAR(sum_f16 / draws, value, 5 * size * 0x1p-11 / root);
    EXPECT_NEAR(sum_fp8 / draws, value, 5 * size * 0x1p-4 / root);
    EXPECT_NE(sum_bf16 / draws, static_cast<double>(f32_from_bf16(bf16_from_f32(value))));
  }
}

TEST(Stochastic, BitsDependOnSeedStepAndIndexOnlyNotOnTheCut) {
  const int64_t count = 1001;
  std::vector<float> in(static_cast<size_t>(count), 1.003f);
  std::vector<uint16_t> whole(in.size()), parts(in.size()), other(in.size());
  const StochasticKey key{11, 3};
  convert_f32_to_bf16_stochastic(in.data(), whole.data(), count, key, 1000003);
  for (int64_t start = 0; start < count;) {
    const int64_t length = std::min<int64_t>(1 + start % 7, count - start);
    convert_f32_to_bf16_stochastic(in.data() + start, parts.data() + start, length, key,
                                   1000003 + static_cast<uint64_t>(start));
    start += length;
  }
  EXPECT_EQ(whole, parts);
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(whole[i],
              encode_stochastic(DType::kBF16, in[i], stochastic_bits(key, 1000003 + static_cast<uint64_t>(i))));
  }
  convert_f32_to_bf16_stochastic(in.data(), other.data(), count, {11, 4}, 1000003);
  EXPECT_NE(whole, other);
  convert_f32_to_bf16_stochastic(in.data(), other.data(), count, {12, 3}, 1000003);
  EXPECT_NE(whole, other);
}

TEST(Stochastic, NeighboursAreNotCorrelated) {
  const int64_t count = 1 << 16;
  const StochasticKey key{1, 1};
  double sum = 0;
  for (int64_t i = 0; i + 1 < count; ++i) {
    const double left = stochastic_bits(key, static_cast<uint64_t>(i)) * 0x1p-32 - 0.5;
    const double right = stochastic_bits(key, static_cast<uint64_t>(i) + 1) * 0x1p-32 - 0.5;
    sum += left * right * 12;
  }
  // Correlation has a standard error of 1 / sqrt(count) = 0.0039.
  EXPECT_LT(std::fabs(sum / static_cast<double>(count)), 0.016);
}

}  // namespace
}  // namespace invar
