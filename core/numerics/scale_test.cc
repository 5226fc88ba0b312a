#include "core/numerics/scale.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/numerics/error_stats.h"
#include "core/numerics/normal.h"

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normals(int64_t count, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[i] = normal_at(seed, 0, static_cast<uint64_t>(i));
  return values;
}

TEST(BlockGrid, CoversARaggedMatrixExactlyOnce) {
  for (const BlockGrid& grid :
       {BlockGrid::per_tensor(5, 7), BlockGrid::per_row(5, 7), BlockGrid::blocks(300, 257, 128, 128),
        BlockGrid::blocks(3, 300, 1, 128), BlockGrid::blocks(2, 33, 1, 32), BlockGrid::blocks(576, 7168, 128, 128)}) {
    std::vector<int> seen(static_cast<size_t>(grid.rows * grid.cols), 0);
    for (int64_t i = 0; i < grid.grid_rows(); ++i) {
      for (int64_t j = 0; j < grid.grid_cols(); ++j) {
        const auto block = grid.extent(i, j);
        EXPECT_GT(block.rows * block.cols, 0);
        for (int64_t row = block.row; row < block.row + block.rows; ++row) {
          for (int64_t col = block.col; col < block.col + block.cols; ++col) ++seen[row * grid.cols + col];
        }
      }
    }
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  }
  EXPECT_EQ(BlockGrid::blocks(576, 7168, 128, 128).grid_rows(), 5);
  EXPECT_EQ(BlockGrid::blocks(576, 7168, 128, 128).extent(4, 0).rows, 64);
  EXPECT_EQ(BlockGrid::per_tensor(0, 7).count(), 0);
}

TEST(ScaleRule, PlainScaleIsOneDivision) {
  for (uint64_t i = 0; i < 1000; ++i) {
    const float amax = std::exp(normal_at(1, 1, i) * 10);
    EXPECT_EQ(*scale_inv_of(amax, {DType::kE4M3FN}), amax / 448.0f);
    EXPECT_EQ(*scale_inv_of(amax, {DType::kE5M2}), amax / 57344.0f);
  }
}

TEST(ScaleRule, PowerOfTwoIsTheLeastThatClipsNothing) {
  for (DType format : {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ, DType::kE2M1}) {
    for (uint64_t i = 0; i < 2000; ++i) {
      // Random values, and exact multiples of max with their FP32 neighbours.
      float amax = std::exp(normal_at(1, 1, i) * 10);
      if (i % 4 != 0) amax = std::ldexp(max_finite(format), static_cast<int>(i % 61) - 30);
      if (i % 4 == 2) amax = std::nextafter(amax, kInf);
      if (i % 4 == 3) amax = std::nextafter(amax, 0.0f);
      const float scale_inv = *scale_inv_of(amax, {format, true});
      int exponent = 0;
      EXPECT_EQ(std::frexp(scale_inv, &exponent), 0.5f);
      EXPECT_GE(static_cast<double>(scale_inv) * max_finite(format), amax);
      EXPECT_LT(static_cast<double>(scale_inv) / 2 * max_finite(format), amax);
      EXPECT_EQ(*scale_inv_of(amax, {format, false, DType::kE8M0}), scale_inv);
    }
  }
}

TEST(ScaleRule, EdgesOfTheRange) {
  for (bool power_of_two : {false, true}) {
    EXPECT_EQ(*scale_inv_of(0.0f, {DType::kE4M3FN, power_of_two}), 1.0f);
    for (float tiny : {0x1p-149f, 1e-40f, 0x1p-126f, 1e-36f}) {
      const float scale_inv = *scale_inv_of(tiny, {DType::kE4M3FN, power_of_two});
      EXPECT_GE(scale_inv, 0x1p-126f);
      EXPECT_TRUE(std::isfinite(1 / scale_inv));
    }
    const float most = std::numeric_limits<float>::max();
    EXPECT_TRUE(std::isfinite(*scale_inv_of(most, {DType::kE2M1, power_of_two})));
    for (float bad : {kInf, kNan, -1.0f}) {
      const auto result = scale_inv_of(bad, {DType::kE4M3FN, power_of_two});
      ASSERT_FALSE(result.ok());
      EXPECT_EQ(result.status().reason(), "scale.non_finite");
    }
  }
  EXPECT_EQ(scale_inv_of(1.0f, {DType::kE8M0}).status().reason(), "scale.rule");
  EXPECT_EQ(scale_inv_of(1.0f, {DType::kE4M3FN, false, DType::kU8}).status().reason(), "scale.rule");
  EXPECT_EQ(scale_inv_of(1e30f, {DType::kE4M3FN, false, DType::kF16}).status().reason(), "scale.rule");
}

TEST(ScaleRule, AStoredDtypeRoundsTheScaleThatIsUsed) {
  const float bf16 = *scale_inv_of(1.2345f, {DType::kE4M3FN, false, DType::kBF16});
  EXPECT_EQ(bf16, f32_from_bf16(bf16_from_f32(1.2345f / 448.0f)));
  const float f16 = *scale_inv_of(1.2345f, {DType::kE4M3FN, false, DType::kF16});
  EXPECT_EQ(f16, f32_from_f16(f16_from_f32(1.2345f / 448.0f)));
}

// Plain loops over the definition in the header.
void reference_quantize(const BlockGrid& grid, const ScaleRule& rule, const float* x, int64_t ldx, uint8_t* codes,
                        float* scale_inv) {
  for (int64_t row = 0; row < grid.rows; row += grid.block_rows) {
    for (int64_t col = 0; col < grid.cols; col += grid.block_cols) {
      float amax = 0;
      const int64_t end_row = std::min(grid.rows, row + grid.block_rows);
      const int64_t end_col = std::min(grid.cols, col + grid.block_cols);
      for (int64_t r = row; r < end_row; ++r) {
        for (int64_t c = col; c < end_col; ++c) amax = std::max(amax, std::fabs(x[r * ldx + c]));
      }
      const float scale = *scale_inv_of(amax, rule);
      *scale_inv++ = scale;
      for (int64_t r = row; r < end_row; ++r) {
        for (int64_t c = col; c < end_col; ++c)
          codes[r * grid.cols + c] = encode_fp8(rule.format, x[r * ldx + c] / scale);
      }
    }
  }
}

TEST(Quantize, EqualsTheDefinitionForEveryGranularityAndLevel) {
  const int64_t ldx = 301;
  const auto x = normals(260 * ldx, 5);
  std::vector<uint16_t> x_bf16(x.size());
  std::vector<float> x_rounded(x.size());
  convert_f32_to_bf16(x.data(), x_bf16.data(), static_cast<int64_t>(x.size()));
  convert_bf16_to_f32(x_bf16.data(), x_rounded.data(), static_cast<int64_t>(x.size()));
  for (CpuLevel level : usable_cpu_levels()) {
    for (DType format : {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ}) {
      for (const BlockGrid& grid : {BlockGrid::per_tensor(130, 257), BlockGrid::per_row(130, 257),
                                    BlockGrid::blocks(130, 257, 128, 128), BlockGrid::blocks(130, 257, 1, 128),
                                    BlockGrid::blocks(130, 257, 1, 32), BlockGrid::blocks(0, 0, 128, 128)}) {
        const ScaleRule rule{format, grid.block_cols == 32};
        const size_t elements = static_cast<size_t>(grid.rows * grid.cols), scales = static_cast<size_t>(grid.count());
        std::vector<uint8_t> expected(elements), codes(elements);
        std::vector<float> expected_scale(scales), scale(scales);
        reference_quantize(grid, rule, x.data(), ldx, expected.data(), expected_scale.data());
        ASSERT_TRUE(quantize(grid, rule, x.data(), ldx, codes.data(), scale.data(), nullptr, level).ok());
        ASSERT_EQ(codes, expected);
        ASSERT_EQ(scale, expected_scale);
        std::vector<uint8_t> again(elements);
        quantize_with(grid, format, x.data(), ldx, scale.data(), again.data(), level);
        ASSERT_EQ(again, codes);
        reference_quantize(grid, rule, x_rounded.data(), ldx, expected.data(), expected_scale.data());
        ASSERT_TRUE(quantize(grid, rule, x_bf16.data(), ldx, codes.data(), scale.data(), nullptr, level).ok());
        ASSERT_EQ(codes, expected);
        ASSERT_EQ(scale, expected_scale);
        // Back again, elementwise by the definition.
        std::vector<uint16_t> out(elements);
        std::vector<float> wide(elements);
        dequantize_to_bf16(grid, format, codes.data(), grid.cols, scale.data(), out.data(), grid.cols, Store::kCached,
                           level);
        dequantize_to_f32(grid, format, codes.data(), grid.cols, scale.data(), wide.data(), grid.cols, level);
        for (int64_t r = 0; r < grid.rows; ++r) {
          for (int64_t c = 0; c < grid.cols; ++c) {
            const float s = scale[r / grid.block_rows * grid.grid_cols() + c / grid.block_cols];
            const uint8_t code = codes[r * grid.cols + c];
            ASSERT_EQ(out[r * grid.cols + c], bf16_from_fp8(format, code, s));
            ASSERT_EQ(wide[r * grid.cols + c], decode(format, code) * s);
          }
        }
      }
    }
  }
}

TEST(Quantize, ReencodingWhatWasDecodedGivesTheSameCodes) {
  const auto x = normals(256 * 256, 9);
  const BlockGrid grid = BlockGrid::blocks(256, 256, 128, 128);
  std::vector<uint8_t> codes(x.size()), again(x.size());
  std::vector<float> scale(static_cast<size_t>(grid.count()));
  ASSERT_TRUE(quantize(grid, {DType::kE4M3FN}, x.data(), 256, codes.data(), scale.data()).ok());
  std::vector<uint16_t> bf16(x.size());
  dequantize_to_bf16(grid, DType::kE4M3FN, codes.data(), 256, scale.data(), bf16.data(), 256);
  quantize_with(grid, DType::kE4M3FN, bf16.data(), 256, scale.data(), again.data());
  EXPECT_EQ(codes, again);
}

TEST(Quantize, NamesTheFirstNonFiniteElement) {
  auto x = normals(200 * 300, 5);
  x[150 * 300 + 170] = kNan;
  std::vector<uint8_t> codes(x.size());
  const BlockGrid grid = BlockGrid::blocks(200, 300, 128, 128);
  std::vector<float> scale(static_cast<size_t>(grid.count()));
  const Status status = quantize(grid, {DType::kE4M3FN}, x.data(), 300, codes.data(), scale.data());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.reason(), "scale.non_finite");
  EXPECT_NE(status.message().find("[150, 170]"), std::string::npos) << status.message();
  const Status wrong = quantize(grid, {DType::kE8M0}, x.data(), 300, codes.data(), scale.data());
  EXPECT_EQ(wrong.reason(), "scale.rule");
}

TEST(Quantize, AnAllZeroRowGivesZerosAndScaleOne) {
  std::vector<float> x(2 * 64, 0.0f);
  x[64] = 3.0f;
  std::vector<uint8_t> codes(x.size(), 0xEE);
  float scale[2];
  QuantizeStats stats;
  ASSERT_TRUE(quantize(BlockGrid::per_row(2, 64), {DType::kE4M3FN}, x.data(), 64, codes.data(), scale, &stats).ok());
  EXPECT_EQ(scale[0], 1.0f);
  EXPECT_EQ(scale[1], 3.0f / 448.0f);
  EXPECT_TRUE(std::all_of(codes.begin(), codes.begin() + 64, [](uint8_t code) { return code == 0; }));
  EXPECT_EQ(stats.amax, 3.0f);
  EXPECT_EQ(stats.codes.zero, 127);
  EXPECT_EQ(stats.codes.saturated, 1);
  EXPECT_EQ(stats.underflowed, 0);
}

TEST(Quantize, CountsWhatUnderflowsUnderAnOutlier) {
  std::vector<float> x(128, 1e-9f);
  x[5] = 1000.0f;
  std::vector<uint8_t> codes(x.size());
  float scale = 0;
  QuantizeStats stats;
  ASSERT_TRUE(
      quantize(BlockGrid::per_tensor(1, 128), {DType::kE4M3FN}, x.data(), 128, codes.data(), &scale, &stats).ok());
  EXPECT_EQ(stats.underflowed, 127);
}

// Golden figures for N(0, 1): what the significand gives, whatever the granularity (the scale moves them by 0.3 dB).
TEST(Quantize, SqnrOfNormalDataIsTheFormatsOwn) {
  const int64_t rows = 256, cols = 512;
  const auto x = normals(rows * cols, 21);
  struct Golden {
    DType format;
    BlockGrid grid;
    bool power_of_two;
    double sqnr_db;
  };
  const Golden goldens[] = {
      {DType::kE4M3FN, BlockGrid::per_tensor(rows, cols), false, 31.5},
      {DType::kE4M3FN, BlockGrid::per_tensor(rows, cols), true, 31.5},
      {DType::kE4M3FN, BlockGrid::per_row(rows, cols), false, 31.5},
      {DType::kE4M3FN, BlockGrid::blocks(rows, cols, 1, 128), false, 31.8},
      {DType::kE4M3FN, BlockGrid::blocks(rows, cols, 128, 128), false, 31.5},
      {DType::kE4M3FN, BlockGrid::blocks(rows, cols, 1, 32), true, 31.5},
      {DType::kE5M2, BlockGrid::per_tensor(rows, cols), false, 25.6},
      {DType::kE5M2, BlockGrid::blocks(rows, cols, 128, 128), true, 25.6},
  };
  for (const Golden& golden : goldens) {
    std::vector<uint8_t> codes(x.size());
    std::vector<float> scale(static_cast<size_t>(golden.grid.count())), back(x.size());
    ASSERT_TRUE(
        quantize(golden.grid, {golden.format, golden.power_of_two}, x.data(), cols, codes.data(), scale.data()).ok());
    dequantize_to_f32(golden.grid, golden.format, codes.data(), cols, scale.data(), back.data(), cols);
    ErrorStats stats;
    stats.add(x.data(), back.data(), rows * cols);
    std::printf("%-8s %3lld x %3lld%s: %.2f dB\n", std::string(name_of(golden.format)).c_str(),
                static_cast<long long>(golden.grid.block_rows), static_cast<long long>(golden.grid.block_cols),
                golden.power_of_two ? " pow2" : "", stats.sqnr_db());
    EXPECT_NEAR(stats.sqnr_db(), golden.sqnr_db, 0.3);
  }
}

}  // namespace
}  // namespace invar
