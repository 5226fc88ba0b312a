#include "core/numerics/normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/base/rng.h"

namespace invar {
namespace {

// The definition, with the C library's functions in FP64.
double defined_value(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto words = philox4x32(seed, index / 2, stream);
  const double u = (static_cast<double>((uint64_t{words[1]} << 32 | words[0]) >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>((uint64_t{words[3]} << 32 | words[2]) >> 11) * 0x1p-53;
  const double radius = std::sqrt(-2 * std::log(u)), angle = 6.283185307179586 * v;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(Normal, EqualsTheDefinition) {
  // The angle of the definition is rounded: 2 pi times half a unit of 2^-53, times a radius below 9.
  constexpr double kAngle = 9 * 6.3 * 0x1p-53;
  std::vector<float> values(1 << 16);
  fill_normal(3, 4, 0, 1 << 16, values.data());
  for (uint64_t i = 0; i < values.size(); ++i) {
    const double expected = defined_value(3, 4, i);
    ASSERT_NEAR(values[i], expected, std::abs(expected) * 0x1.0001p-24 + kAngle) << i;
  }
}

TEST(Normal, EveryLevelGivesTheSameBitsFromAnyStart) {
  constexpr int64_t kCount = 1 << 14;
  std::vector<float> expected(kCount + 8), found(kCount + 8);
  const uint64_t far = (uint64_t{1} << 40) + 12345;
  for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{6}, far}) {
    for (int64_t i = 0; i < kCount; ++i) expected[i] = normal_at(77, 1u << 20, first + static_cast<uint64_t>(i));
    for (CpuLevel level : usable_cpu_levels()) {
      for (int64_t count : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{7}, int64_t{15}, int64_t{33}, kCount}) {
        std::fill(found.begin(), found.end(), 9.0f);
        fill_normal(77, 1u << 20, first, count, found.data(), level);
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), static_cast<size_t>(count) * sizeof(float)), 0)
            << cpu_level_name(level) << " " << first << " " << count;
        ASSERT_EQ(found[count], 9);
      }
    }
  }
}

TEST(Normal, MomentsAreThoseOfTheDistribution) {
  constexpr int64_t kCount = 1 << 20;
  std::vector<float> values(kCount);
  fill_normal(5, 6, 0, kCount, values.data());
  double sum = 0, squares = 0, fourth = 0;
  for (float x : values) sum += x, squares += double{x} * x, fourth += double{x} * x * x * x;
  // Five standard deviations of each mean.
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourth / kCount, 3, 5 * std::sqrt(96.0 / kCount));
}

}  // namespace
}  // namespace invar
