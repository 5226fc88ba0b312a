#include "core/optim/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/numerics/normal.h"
#include "core/optim/gradient_accumulator.h"

namespace invar {
namespace {

std::shared_ptr<Device> cpu(int threads = 1) {
  auto device = Device::open("cpu", std::make_shared<ThreadPool>(threads));
  EXPECT_TRUE(device.ok()) << device.status().message();
  return *device;
}

float bf16_to_float(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

std::vector<float> normals(int64_t count, uint64_t stream) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = normal_at(7, stream, static_cast<uint64_t>(i));
  return values;
}

TEST(AdamW, FollowsTheFormulaInFp64OverManySteps) {
  constexpr int64_t kCount = 1037;
  const AdamWOptions options{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  for (bool decays : {true, false}) {
    std::vector<float> master = normals(kCount, 1), gradient(kCount);
    std::vector<uint16_t> working(kCount);
    std::vector<double> p(master.begin(), master.end()), m(kCount), v(kCount);
    auto optimizer =
        AdamW::create(cpu(), {{"w", kCount, master.data(), gradient.data(), working.data(), decays}}, options);
    ASSERT_TRUE(optimizer.ok()) << optimizer.status().message();
    for (int k = 1; k <= 20; ++k) {
      const double lr = 1e-3 * k, scale = 0.25;
      const std::vector<float> fresh = normals(kCount, 100 + static_cast<uint64_t>(k));
      std::copy(fresh.begin(), fresh.end(), gradient.begin());  // the optimizer keeps the pointer
      ASSERT_TRUE(optimizer->step(lr, scale).ok());
      for (size_t i = 0; i < kCount; ++i) {
        const double g = gradient[i] * scale;
        if (decays) p[i] -= lr * 0.1 * p[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.95 * v[i] + 0.05 * g * g;
        p[i] -= lr * (m[i] / (1 - std::pow(0.9, k))) / (std::sqrt(v[i] / (1 - std::pow(0.95, k))) + 1e-8);
      }
    }
    EXPECT_EQ(optimizer->steps(), 20);
    // About 10 FP32 roundings a step of values near 1 (2^-24 each), 20 steps: 2e-6 at most, plus the moments' own
    // error.
    double worst = 0, worst_copy = 0;
    for (size_t i = 0; i < kCount; ++i) {
      worst = std::max(worst, std::fabs(master[i] - p[i]) / (1 + std::fabs(p[i])));
      worst_copy = std::max<double>(worst_copy, std::fabs(bf16_to_float(working[i]) / master[i] - 1));
    }
    std::printf("largest relative difference to fp64 %.3g\n", worst);
    EXPECT_LT(worst, 3e-6);
    EXPECT_LE(worst_copy, 0x1p-8);
  }
}

TEST(AdamW, SameBitsAtAnyThreadCount) {
  constexpr int64_t kCount = 70001;
  std::vector<float> reference;
  for (int threads : {1, 2, 3}) {
    std::vector<float> master = normals(kCount, 1);
    const std::vector<float> gradient = normals(kCount, 2);
    auto optimizer = AdamW::create(cpu(threads), {{"w", kCount, master.data(), gradient.data(), nullptr, true}}, {});
    ASSERT_TRUE(optimizer.ok());
    for (int k = 0; k < 3; ++k) ASSERT_TRUE(optimizer->step(1e-2, 1).ok());
    if (threads == 1) reference = master;
    EXPECT_EQ(std::memcmp(reference.data(), master.data(), kCount * sizeof(float)), 0) << threads;
  }
}

TEST(AdamW, RefusedStepTouchesNothing) {
  std::vector<float> master = {1, 2, 3}, gradient = {1, 1, 1};
  auto optimizer = AdamW::create(cpu(), {{"w", 3, master.data(), gradient.data(), nullptr, true}}, {});
  ASSERT_TRUE(optimizer.ok());
  EXPECT_EQ(optimizer->step(NAN, 1).reason(), "optimizer.bad_step");
  EXPECT_EQ(optimizer->step(1e-3, INFINITY).reason(), "optimizer.bad_step");
  EXPECT_EQ(optimizer->steps(), 0);
  EXPECT_EQ(master, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(optimizer->m(0)[1], 0);
}

TEST(AdamW, ChecksOptionsAndParameters) {
  EXPECT_EQ(AdamW::create(cpu(), {}, {.beta2 = 1.0}).status().reason(), "optimizer.bad_option");
  EXPECT_EQ(AdamW::create(cpu(), {}, {.eps = 0}).status().reason(), "optimizer.bad_option");
  const auto status = AdamW::create(cpu(), {{"lost", 3, nullptr, nullptr, nullptr, true}}, {}).status();
  EXPECT_EQ(status.reason(), "optimizer.bad_parameter");
  EXPECT_NE(status.message().find("\"lost\""), std::string::npos);
}

TEST(ClipFactor, ScalesLargeNormsOnly) {
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_DOUBLE_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(1e30, 0), 1);
}

TEST(GradientAccumulator, SumsInFp32WhateverTheMicroBatchesAreStoredIn) {
  auto accumulator = GradientAccumulator::create(cpu(), {3, 2});
  ASSERT_TRUE(accumulator.ok());
  const uint16_t one_bf16[3] = {0x3F80, 0x3F80, 0x3F80};
  const float big[3] = {256, 0, -256};
  ASSERT_TRUE(accumulator->add(0, big, DType::kF32).ok());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(accumulator->add(0, one_bf16, DType::kBF16).ok());
  accumulator->add_tokens(5);
  accumulator->add_tokens(7);
  EXPECT_EQ(accumulator->tokens(), 12);
  EXPECT_EQ(accumulator->sum(0)[0], 556);
  EXPECT_EQ(accumulator->sum(0)[2], 44);
  EXPECT_EQ(accumulator->sum(1)[1], 0);
  const auto norm = accumulator->norm_squared();
  ASSERT_TRUE(norm.ok());
  EXPECT_DOUBLE_EQ(*norm, 556.0 * 556 + 300.0 * 300 + 44.0 * 44);
  ASSERT_TRUE(accumulator->begin().ok());
  EXPECT_EQ(accumulator->sum(0)[0], 0);
  EXPECT_EQ(accumulator->tokens(), 0);
}

TEST(GradientAccumulator, NamesTheTensorThatIsNotFinite) {
  auto accumulator = GradientAccumulator::create(cpu(), {2, 2});
  ASSERT_TRUE(accumulator.ok());
  EXPECT_EQ(*accumulator->first_non_finite(), -1);
  const float bad[2] = {1, INFINITY};
  ASSERT_TRUE(accumulator->add(1, bad, DType::kF32).ok());
  EXPECT_EQ(*accumulator->first_non_finite(), 1);
  EXPECT_EQ(accumulator->add(2, bad, DType::kF32).reason(), "optimizer.bad_index");
}

}  // namespace
}  // namespace invar
