// exp, sigmoid and tanh against FP64, over every exponent and beyond both ends.
#include "core/device/cpu/simd/math_probe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/numerics/cpu_features.h"

namespace invar::cpu {
namespace {

class VectorMath : public testing::TestWithParam<CpuLevel> {
 protected:
  MathProbe probe_ = math_probe(static_cast<int>(GetParam()));
};

// Units in the last place of the FP32 nearest to `expected`; subnormal results count in their fixed unit.
double ulps(float actual, double expected) {
  if (std::isnan(expected)) return std::isnan(actual) ? 0 : 1e9;
  if (std::isinf(static_cast<float>(expected))) return std::isinf(actual) ? 0 : 1e9;
  int exponent;
  std::frexp(expected, &exponent);
  return std::fabs(actual - expected) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

std::vector<float> samples(float from, float to) {
  std::vector<float> all;
  for (int i = 0; i <= 400000; ++i) all.push_back(from + (to - from) * static_cast<float>(i) / 400000.0f);
  for (float small = 1; small > 1e-40f; small *= 0.37f) all.insert(all.end(), {small, -small});
  const float inf = std::numeric_limits<float>::infinity();
  all.insert(all.end(),
             {0.f, -0.f, inf, -inf, std::numeric_limits<float>::quiet_NaN(), 88.722f, 88.73f, -103.97f, -200.f});
  while (all.size() % 16 != 0) all.push_back(0);
  return all;
}

double worst(void (*function)(const float*, float*, int64_t), double (*exact)(double), float from, float to) {
  const std::vector<float> x = samples(from, to);
  std::vector<float> y(x.size());
  function(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], exact(x[i]));
    if (error > largest) largest = error;
    if (error > 100) ADD_FAILURE() << "f(" << x[i] << ") = " << y[i] << ", not " << exact(x[i]);
    if (error > 100) break;
  }
  return largest;
}

TEST_P(VectorMath, ExpIsWithinOneUnit) {
  const double error = worst(
      probe_.exp, [](double x) { return std::exp(x); }, -110, 95);
  std::printf("exp: %.2f ulp\n", error);
  EXPECT_LE(error, 1.0);
}

TEST_P(VectorMath, SigmoidIsWithinFourUnits) {
  // Below -87 it stays at 1.6e-38 instead of vanishing: not measured there.
  const std::vector<float> x = samples(-87, 87);
  std::vector<float> y(x.size());
  probe_.sigmoid(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] < -87) {
      EXPECT_LE(y[i], 1.7e-38f);
    } else {
      largest = std::max(largest, ulps(y[i], 1 / (1 + std::exp(-double{x[i]}))));
    }
  }
  std::printf("sigmoid: %.2f ulp\n", largest);
  EXPECT_LE(largest, 4.0);
}

TEST_P(VectorMath, TanhIsWithinFourUnits) {
  const double error = worst(
      probe_.tanh, [](double x) { return std::tanh(x); }, -12, 12);
  std::printf("tanh: %.2f ulp\n", error);
  EXPECT_LE(error, 4.0);
}

TEST_P(VectorMath, ShortExp2HasARelativeErrorOfTwoToMinus18) {
  std::vector<float> x, y;
  for (int i = 0; i < 160000; ++i) x.push_back(static_cast<float>(-i) * 0.001f);
  y.resize(x.size());
  probe_.exp2_short(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = x[i] < -126 ? 0 : std::exp2(double{x[i]});
    ASSERT_NEAR(y[i], exact, exact * 0x1p-17) << x[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, VectorMath, testing::ValuesIn(usable_cpu_levels()),
                         [](const auto& info) { return std::string(cpu_level_name(info.param)); });

}  // namespace
}  // namespace invar::cpu
