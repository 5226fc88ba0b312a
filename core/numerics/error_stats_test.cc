#include "core/numerics/error_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/numerics/normal.h"

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ErrorStats, MeasuresAHandMadeExample) {
  const float reference[] = {3.0f, -4.0f, 0.0f, 0.0f};
  const float value[] = {3.0f, -4.5f, 0.0f, 0.0f};
  ErrorStats stats;
  stats.add(reference, value, 4);
  EXPECT_EQ(stats.count(), 4);
  EXPECT_EQ(stats.different(), 1);
  EXPECT_EQ(stats.max_abs_error(), 0.5);
  EXPECT_DOUBLE_EQ(stats.relative_frobenius(), 0.1);
  EXPECT_DOUBLE_EQ(stats.sqnr_db(), 20.0);
}

TEST(ErrorStats, EqualValuesHaveNoNoise) {
  const float values[] = {1.0f, 2.0f};
  ErrorStats stats;
  stats.add(values, values, 2);
  EXPECT_EQ(stats.sqnr_db(), HUGE_VAL);
  EXPECT_EQ(stats.relative_frobenius(), 0);
  const float zeros[] = {0.0f, 0.0f};
  ErrorStats against_zero;
  against_zero.add(zeros, values, 2);
  EXPECT_EQ(against_zero.relative_frobenius(), HUGE_VAL);
}

TEST(ErrorStats, NonFinitePairsAreCountedApart) {
  const float reference[] = {1.0f, kNan, kInf, 1.0f};
  const float value[] = {1.0f, 1.0f, kInf, -kInf};
  ErrorStats stats;
  stats.add(reference, value, 4);
  EXPECT_EQ(stats.count(), 1);
  EXPECT_EQ(stats.non_finite(), 3);
  EXPECT_EQ(stats.max_abs_error(), 0);
}

TEST(ErrorStats, MergedPartsEqualTheWhole) {
  std::vector<float> reference(1000), value(1000);
  for (uint64_t i = 0; i < 1000; ++i) {
    reference[i] = normal_at(1, 0, i);
    value[i] = reference[i] + 0.25f * std::round(4 * normal_at(2, 0, i));
  }
  ErrorStats whole, left, right;
  whole.add(reference.data(), value.data(), 1000);
  left.add(reference.data(), value.data(), 300);
  right.add(reference.data() + 300, value.data() + 300, 700);
  left.merge(right);
  EXPECT_EQ(left.count(), whole.count());
  EXPECT_EQ(left.different(), whole.different());
  EXPECT_EQ(left.max_abs_error(), whole.max_abs_error());
  // A thousand FP64 additions in another order.
  EXPECT_NEAR(left.sqnr_db(), whole.sqnr_db(), 1e-10);
}

TEST(KlDivergence, EqualsTheClosedFormOfTwoOutcomes) {
  const float p[] = {0.0f, std::log(3.0f)}, q[] = {0.0f, 0.0f};
  // P = (1/4, 3/4), Q = (1/2, 1/2). The logit log(3) is rounded to FP32.
  const double expected = 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  EXPECT_NEAR(kl_divergence(p, q, 2), expected, 1e-7);
  EXPECT_EQ(kl_divergence(p, p, 2), 0);
  const float shifted[] = {1000.0f, 1000.0f};
  EXPECT_NEAR(kl_divergence(p, shifted, 2), expected, 1e-7);
}

TEST(KlDivergence, MaskedAndBrokenRows) {
  const float p[] = {0.0f, 0.0f, -kInf}, q[] = {0.0f, -kInf, 0.0f}, broken[] = {0.0f, kNan, 0.0f};
  const float nothing[] = {-kInf, -kInf, -kInf};
  EXPECT_EQ(kl_divergence(p, q, 3), HUGE_VAL);
  EXPECT_EQ(kl_divergence(p, p, 3), 0);
  EXPECT_TRUE(std::isnan(kl_divergence(broken, p, 3)));
  EXPECT_TRUE(std::isnan(kl_divergence(p, broken, 3)));
  EXPECT_TRUE(std::isnan(kl_divergence(nothing, p, 3)));
}

TEST(KlStats, GathersRowsAndAgreement) {
  const float a[] = {0.0f, 1.0f}, b[] = {2.0f, 1.0f};
  KlStats stats, other, empty;
  EXPECT_EQ(empty.mean(), 0);
  EXPECT_EQ(empty.top1_agreement(), 1);
  stats.add_row(a, a, 2);
  other.add_row(a, b, 2);
  stats.merge(other);
  EXPECT_EQ(stats.rows(), 2);
  EXPECT_EQ(stats.top1_agreement(), 0.5);
  EXPECT_DOUBLE_EQ(stats.mean(), kl_divergence(a, b, 2) / 2);
  EXPECT_DOUBLE_EQ(stats.max(), kl_divergence(a, b, 2));
  const float broken[] = {kNan, 0.0f};
  stats.add_row(a, broken, 2);
  stats.add_row(a, b, 2);
  EXPECT_TRUE(std::isnan(stats.max()));
  EXPECT_TRUE(std::isnan(stats.mean()));
}

}  // namespace
}  // namespace invar
