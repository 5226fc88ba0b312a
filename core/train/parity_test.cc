// The first steps of the recorded run against its recorded curves; parity_full_test runs all of it.
#include "core/train/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

namespace invar {
namespace {

const char* const kReference = "tools/bench/peers/parity";

struct Recorded {
  std::vector<double> loss, grad_norm, lr;
};

Recorded recorded(const std::string& mode) {
  std::ifstream file(std::string(kReference) + "/curve_" + mode + ".json");
  const auto json = nlohmann::json::parse(file);
  return {json["loss"].get<std::vector<double>>(), json["grad_norm"].get<std::vector<double>>(),
          json["lr"].get<std::vector<double>>()};
}

ParityCurve run(Recipe recipe, int64_t steps, int64_t micro_batch = 0, int threads = 2) {
  const ParityOptions options{
      .reference = kReference, .recipe = recipe, .steps = steps, .micro_batch = micro_batch, .evaluate = false};
  auto curve = run_parity(options, std::make_shared<ThreadPool>(threads), posix_files(), nullptr, nullptr);
  EXPECT_TRUE(curve.ok()) << curve.status().message();
  return curve.ok() ? *curve : ParityCurve{};
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b, size_t from, size_t to) {
  double largest = 0;
  for (size_t i = from; i < to; ++i) largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

TEST(Parity, Fp32FollowsTheFp64CurveMoreCloselyThanTorchsFp32) {
  const auto truth = recorded("fp64"), torch = recorded("fp32");
  const auto ours = run(Recipe::kFp32, 10);
  ASSERT_EQ(ours.loss.size(), 10u);
  const double worst = largest_difference(ours.loss, truth.loss, 0, 10);
  double worst_norm = 0, torch_norm = 0;
  for (size_t i = 0; i < 10; ++i) {
    worst_norm = std::max(worst_norm, std::fabs(ours.grad_norm[i] / truth.grad_norm[i] - 1));
    torch_norm = std::max(torch_norm, std::fabs(torch.grad_norm[i] / truth.grad_norm[i] - 1));
    EXPECT_DOUBLE_EQ(ours.lr[i], truth.lr[i]) << i;
  }
  std::printf("fp32 loss: step 1 off by %.2g, steps 1-10 by %.2g (torch %.2g); gradient norm by %.2g (torch %.2g)\n",
              std::fabs(ours.loss[0] - truth.loss[0]), worst, largest_difference(torch.loss, truth.loss, 0, 10),
              worst_norm, torch_norm);
  EXPECT_LE(std::fabs(ours.loss[0] - truth.loss[0]), 2e-6);
  EXPECT_LE(worst, 1e-5);
  EXPECT_LE(worst_norm, torch_norm);
}

TEST(Parity, Bf16WithFp32MastersFollowsTheFp64Curve) {
  const auto truth = recorded("fp64");
  const auto ours = run(Recipe::kBf16, 10);
  ASSERT_EQ(ours.loss.size(), 10u);
  const double worst = largest_difference(ours.loss, truth.loss, 0, 10);
  std::printf("bf16 loss: step 1 off by %.2g, steps 1-10 by %.2g\n", std::fabs(ours.loss[0] - truth.loss[0]), worst);
  EXPECT_LE(std::fabs(ours.loss[0] - truth.loss[0]), 1e-4);
  EXPECT_LE(worst, 2e-2);
}

TEST(Parity, Fp8StartsLikeBf16) {
  const auto bf16 = run(Recipe::kBf16, 4);
  for (Recipe recipe : {Recipe::kFp8Tensor, Recipe::kFp8Block}) {
    const auto ours = run(recipe, 4);
    ASSERT_EQ(ours.loss.size(), 4u);
    const double worst = largest_difference(ours.loss, bf16.loss, 0, 4);
    std::printf("%s: steps 1-4 differ from bf16 by %.2g\n", std::string(recipe_name(recipe)).c_str(), worst);
    EXPECT_LE(worst, 0.02 * bf16.loss[3]);
    EXPECT_GT(worst, 0) << "the recipe was not in force";
  }
}

TEST(Parity, SameBitsAtAnyThreadCount) {
  for (Recipe recipe : {Recipe::kBf16, Recipe::kFp8Block}) {
    const auto one = run(recipe, 2, 0, 1), three = run(recipe, 2, 0, 3);
    EXPECT_EQ(one.loss, three.loss);
    EXPECT_EQ(one.grad_norm, three.grad_norm);
  }
}

TEST(Parity, AccumulationGivesTheSameStepWithinFp32Reassociation) {
  const auto whole = run(Recipe::kFp32, 2), parts = run(Recipe::kFp32, 2, 2);
  EXPECT_LE(largest_difference(whole.loss, parts.loss, 0, 2), 2e-6);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(parts.grad_norm[i] / whole.grad_norm[i], 1, 2e-6);
}

}  // namespace
}  // namespace invar
