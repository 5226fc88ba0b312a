// Bit-equal to the scalar reference and to core/numerics on every level of this machine, for every granularity with
// ragged ends, and the same with one and with three threads.
#include "core/device/cpu/quantize/quantize.h"

#include <limits>

#include "core/device/cpu/reference/reference.h"
#include "core/device/cpu/testing/compare.h"

namespace invar::cpu {
namespace {

struct Units {
  int32_t granularity;
  int64_t block_rows, block_cols;
};
const Units kUnits[] = {{INVAR_SCALE_PER_TENSOR, 0, 0},  {INVAR_SCALE_PER_ROW, 0, 0}, {INVAR_SCALE_BLOCK, 1, 128},
                        {INVAR_SCALE_BLOCK, 128, 128},   {INVAR_SCALE_BLOCK, 3, 5},   {INVAR_SCALE_BLOCK, 1, 32},
                        {INVAR_SCALE_BLOCK, 1000, 1000}, {INVAR_SCALE_BLOCK, 7, 200}, {INVAR_SCALE_BLOCK, 128, 1},
                        {INVAR_SCALE_BLOCK, 3, 1}};
const DType kFormats8[] = {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ, DType::kE5M2FNUZ};

class Quantize : public testing::TestWithParam<Level> {
 protected:
  Quantize() { fill_quantize(kernels_, GetParam()); }

  void check(int64_t rows, int64_t cols, std::vector<float> values) {
    const int64_t ldx = cols + 3, ld = cols + 1;
    for (int32_t x_dtype : {kF32, kBF16}) {
      Stored x(x_dtype, values);
      for (DType format : kFormats8) {
        // The last two formats run the scalar code itself.
        if (format != DType::kE4M3FN && format != DType::kE5M2 && rows > 5) continue;
        for (const Units& units : kUnits) {
          for (int flags = 0; flags < 3; ++flags) {
            struct Result {
              std::vector<uint8_t> codes;
              std::vector<float> scale_inv;
              Stored dequantized;
              std::vector<float> amax;
            };
            const Result blank{std::vector<uint8_t>(rows * cols, 0x55),
                               std::vector<float>(rows * cols + 1, -1.f),
                               Stored(kBF16, size_t(rows * ld), 3.f),
                               {-1.f}};
            Result results[3] = {blank, blank, blank};
            for (int i = 0; i < 3; ++i) {
              Result& result = results[i];
              invar_quantize_args args{};
              args.x_dtype = x_dtype, args.format = static_cast<int32_t>(format);
              args.granularity = units.granularity, args.power_of_two = flags & 1, args.apply_scale = flags >> 1;
              args.rows = rows, args.cols = cols, args.block_rows = units.block_rows;
              args.block_cols = units.block_cols, args.ldx = ldx, args.ld_dequantized = ld;
              args.x = x.data(), args.codes = result.codes.data(), args.scale_inv = result.scale_inv.data();
              args.dequantized = result.dequantized.data(), args.amax = result.amax.data();
              Context& context = i == 2 ? three_.get() : one_.get();
              ASSERT_EQ(i == 0 ? reference::quantize(context, args) : kernels_.quantize(context, args), 0);
            }
            for (int i : {1, 2}) {
              SCOPED_TRACE(testing::Message() << "format " << int(format) << " granularity " << units.granularity << " "
                                              << units.block_rows << "x" << units.block_cols << " flags " << flags
                                              << " x " << x_dtype << " " << rows << "x" << cols << " run " << i);
              EXPECT_EQ(results[i].codes, results[0].codes);
              EXPECT_EQ(Stored(kF32, results[i].scale_inv), Stored(kF32, results[0].scale_inv));
              EXPECT_EQ(results[i].dequantized, results[0].dequantized);
              EXPECT_EQ(Stored(kF32, results[i].amax), Stored(kF32, results[0].amax));
            }
          }
        }
      }
    }
  }

  Kernels kernels_{};
  TestContext one_{1}, three_{3};
};

TEST_P(Quantize, EveryGranularityWithRaggedEnds) {
  const int64_t shapes[][2] = {{1, 1}, {5, 15}, {130, 128}, {1, 259}, {131, 133}};
  for (const auto& [rows, cols] : shapes) check(rows, cols, random_floats(rows * (cols + 3), 1, 3));
}

TEST_P(Quantize, ZeroTinyAndHugeUnits) {
  std::vector<float> values = random_floats(16 * 67, 2);
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t col = 0; col < 67; ++col) {
      // Rows from zero over subnormal numbers to the largest.
      values[row * 67 + col] *= row == 0 ? 0 : std::ldexp(1.0f, static_cast<int>(row * 17 - 149));
    }
  }
  values[15 * 67] = std::numeric_limits<float>::max();
  check(16, 64, values);
}

TEST_P(Quantize, NonFiniteValuesStayVisible) {
  for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
                    -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = random_floats(4 * 43, 3);
    values[50] = bad;
    check(4, 40, values);
  }
}

TEST_P(Quantize, EveryBf16ValueAndTheTies) {
  // With an amax of exactly the format's maximum the scale is 1: codes follow from the values alone.
  for (float largest : {448.f, 57344.f}) {
    std::vector<float> values{largest};
    for (uint32_t pattern = 0; pattern < 65536; ++pattern) {
      const float value = f32_from_bf16(static_cast<uint16_t>(pattern));
      if (std::fabs(value) <= largest) values.push_back(value);
    }
    // Each code's neighbours at the ties.
    for (uint32_t code = 0; code < 0x7e; ++code) {
      const float low = decode(DType::kE4M3FN, code), high = decode(DType::kE4M3FN, code + 1);
      const float tie = (low + high) / 2;
      for (float value : {tie, std::nextafter(tie, 0.f), std::nextafter(tie, 1e9f)}) values.push_back(value);
    }
    const int64_t cols = 259 - 3, rows = static_cast<int64_t>(values.size()) / 259 + 1;
    values.resize(rows * 259);
    Stored x(kF32, values);
    std::vector<uint8_t> codes(rows * cols), expected(rows * cols);
    std::vector<float> scales(1);
    invar_quantize_args args{};
    args.x_dtype = kF32, args.format = static_cast<int32_t>(largest == 448.f ? DType::kE4M3FN : DType::kE5M2);
    args.granularity = INVAR_SCALE_PER_TENSOR, args.rows = rows, args.cols = cols, args.ldx = 259;
    args.x = x.data(), args.codes = codes.data(), args.scale_inv = scales.data();
    ASSERT_EQ(kernels_.quantize(one_.get(), args), 0);
    EXPECT_EQ(scales[0], 1.f);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        expected[r * cols + c] = encode_fp8(static_cast<DType>(args.format), values[r * 259 + c]);
      }
    }
    EXPECT_EQ(codes, expected);
  }
}

TEST_P(Quantize, OutputsMayBeLeftOut) {
  const auto values = random_floats(300 * 300, 4);
  float amax = 0;
  invar_quantize_args args{};
  args.x_dtype = kF32, args.format = static_cast<int32_t>(DType::kE4M3FN), args.granularity = INVAR_SCALE_PER_TENSOR;
  args.rows = 300, args.cols = 300, args.ldx = 300, args.x = values.data(), args.amax = &amax;
  ASSERT_EQ(kernels_.quantize(one_.get(), args), 0);
  float expected = 0;
  for (float value : values) expected = std::max(expected, std::fabs(value));
  EXPECT_EQ(amax, expected);
  args.granularity = INVAR_SCALE_BLOCK, args.block_rows = args.block_cols = 128, args.amax = nullptr;
  std::vector<float> scales(9);
  args.scale_inv = scales.data();
  ASSERT_EQ(kernels_.quantize(one_.get(), args), 0);
  for (float scale : scales) EXPECT_GT(scale, 0);
}

TEST_P(Quantize, Fp32CopyWithAScaleThatIsGiven) {
  const int64_t rows = 7, cols = 133;
  const auto values = random_floats(rows * cols, 5, 100);
  std::vector<float> copy(rows * cols);
  invar_quantize_args args{};
  args.x_dtype = kF32, args.format = static_cast<int32_t>(DType::kE4M3FN), args.granularity = INVAR_SCALE_PER_TENSOR;
  args.rows = rows, args.cols = cols, args.ldx = args.ld_dequantized = cols, args.x = values.data();
  args.dequantized = copy.data(), args.dequantized_dtype = kF32, args.apply_scale = 1, args.fixed_scale_inv = 0.03f;
  for (Context* context : {&one_.get(), &three_.get()}) {
    ASSERT_EQ(kernels_.quantize(*context, args), 0);
    for (int64_t i = 0; i < rows * cols; ++i) {
      ASSERT_EQ(copy[i], decode(DType::kE4M3FN, encode_fp8(DType::kE4M3FN, values[i] / 0.03f)) * 0.03f) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Quantize, testing::ValuesIn(usable_levels()), level_test_name);

}  // namespace
}  // namespace invar::cpu
