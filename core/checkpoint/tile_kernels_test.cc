// Every table of kernels against the scalar codecs, on every level this machine has.
#include "core/checkpoint/tile_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/base/rng.h"
#include "core/numerics/formats.h"

namespace invar {
namespace {

constexpr DType kTypes[] = {DType::kE4M3FN, DType::kE5M2, DType::kE4M3FNUZ};

std::vector<uint8_t> finite_codes(DType dtype, int64_t n, uint64_t seed) {
  Rng rng(seed);
  const FormatInfo& format = format_info(dtype);
  std::vector<uint8_t> codes;
  while (static_cast<int64_t>(codes.size()) < n) {
    const uint8_t code = static_cast<uint8_t>(codes.size() < 256 ? codes.size() : rng.next_below(256));
    codes.push_back(format.is_nan(code) || format.is_inf(code) ? 0 : code);
  }
  return codes;
}

TEST(TileKernels, CountWhatTheFormatSays) {
  for (CpuLevel level : usable_cpu_levels()) {
    for (DType dtype : kTypes) {
      SCOPED_TRACE(testing::Message() << cpu_level_name(level) << " " << name_of(dtype));
      const FormatInfo& format = format_info(dtype);
      for (int64_t n : {0, 1, 31, 32, 33, 63, 64, 65, 255, 256, 1000}) {
        std::vector<uint8_t> codes(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) codes[static_cast<size_t>(i)] = static_cast<uint8_t>(255 - i * 7);
        CodeCounts want, got;
        for (uint8_t code : codes) {
          want.not_finite += format.is_nan(code) || format.is_inf(code);
          want.zero += decode(dtype, code) == 0;
          want.saturated += (code & format.magnitude_mask()) == format.max_code;
          want.largest = std::max<uint32_t>(want.largest, code & 0x7Fu);
        }
        tile_kernels(level)->count(codes.data(), n, code_shape(dtype), &got);
        EXPECT_EQ(got.not_finite, want.not_finite) << n;
        EXPECT_EQ(got.zero, want.zero) << n;
        EXPECT_EQ(got.saturated, want.saturated) << n;
        EXPECT_EQ(got.largest, want.largest) << n;
      }
    }
  }
}

TEST(TileKernels, RowsEqualTheScalarCodecsBitForBit) {
  for (CpuLevel level : usable_cpu_levels()) {
    for (DType dtype : kTypes) {
      for (int64_t n : {1, 7, 8, 31, 32, 33, 127, 128, 129, 256, 1000}) {
        for (int64_t block : {1, 5, 32, 128, 4096}) {
          for (int64_t first : {int64_t{1}, int64_t{3}, block}) {
            if (first > block) continue;
            SCOPED_TRACE(testing::Message() << cpu_level_name(level) << " " << name_of(dtype) << " n " << n << " block "
                                            << block << " first " << first);
            const std::vector<uint8_t> codes = finite_codes(dtype, n, 7);
            const CodeShape& shape = *code_shape(dtype);
            std::vector<float> scales, multiplied;
            for (int64_t i = 0; i < n + 1; ++i) {
              // From ordinary to the ends of the fast range.
              const float power = i % 7 == 5 ? 0x1p-99f : i % 7 == 6 ? 0x1p+98f : 0x1p-12f;
              scales.push_back(
                  (1.0f + static_cast<float>(philox4x32(11, static_cast<uint64_t>(i), 0)[0] >> 9) * 0x1p-23f) * power);
              multiplied.push_back(scales.back() * shape.unit);
            }
            std::vector<uint16_t> bf16(static_cast<size_t>(n) + 1, 0xABCD), f16(static_cast<size_t>(n) + 1, 0xABCD);
            std::vector<float> f32(static_cast<size_t>(n) + 1, -7.0f);
            const TileKernels& kernels = *tile_kernels(level);
            kernels.row_to_bf16(codes.data(), n, multiplied.data(), first, block, shape.half_bits, bf16.data());
            kernels.row_to_f16(codes.data(), n, multiplied.data(), first, block, shape.half_bits, f16.data());
            kernels.row_to_f32(codes.data(), n, multiplied.data(), first, block, shape.half_bits, f32.data());
            uint32_t largest16 = 0, largest32 = 0;
            for (int64_t i = 0; i < n; ++i) {
              const size_t at = static_cast<size_t>(i);
              const float product =
                  decode(dtype, codes[at]) * scales[static_cast<size_t>(i < first ? 0 : 1 + (i - first) / block)];
              ASSERT_EQ(bf16[at], bf16_from_f32(product)) << i;
              ASSERT_EQ(f16[at], f16_from_f32(product)) << i;
              ASSERT_EQ(std::bit_cast<uint32_t>(f32[at]), std::bit_cast<uint32_t>(product)) << i;
              largest16 = std::max<uint32_t>(largest16, bf16[at] & 0x7FFFu);
              largest32 = std::max<uint32_t>(largest32, std::bit_cast<uint32_t>(f32[at]) & 0x7FFFFFFFu);
            }
            ASSERT_EQ(bf16.back(), 0xABCD) << "wrote behind the row";
            ASSERT_EQ(f16.back(), 0xABCD) << "wrote behind the row";
            ASSERT_EQ(f32.back(), -7.0f) << "wrote behind the row";
            ASSERT_EQ(kernels.largest16(bf16.data(), n), largest16);
            ASSERT_EQ(kernels.largest32(reinterpret_cast<const uint32_t*>(f32.data()), n), largest32);
          }
        }
      }
    }
  }
}

TEST(TileKernels, HashIsTheSameOnEveryLevel) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  for (int64_t n : {0, 1, 16, 17, 128, 129, 240, 241, 1024, 5000}) {
    const uint64_t want = tile_kernels_portable()->hash(bytes.data(), n);
    for (CpuLevel level : usable_cpu_levels()) {
      EXPECT_EQ(tile_kernels(level)->hash(bytes.data(), n), want) << cpu_level_name(level) << " " << n;
    }
  }
}

}  // namespace
}  // namespace invar
