// All 300 steps of the recorded run in every recipe, against the gates of the project; about two minutes a recipe on
// two free cores.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/train/parity.h"

namespace invar {
namespace {

const char* const kReference = "tools/bench/peers/parity";
constexpr size_t kSteps = 300;

struct Curve {
  std::vector<double> loss, grad_norm;
  double eval_loss = 0;
};

Curve recorded(const std::string& mode) {
  std::ifstream file(std::string(kReference) + "/curve_" + mode + ".json");
  const auto json = nlohmann::json::parse(file);
  return {json["loss"].get<std::vector<double>>(), json["grad_norm"].get<std::vector<double>>(),
          json["eval_loss"].get<double>()};
}

// Each recipe runs once for all tests.
const Curve& trained(Recipe recipe) {
  static std::map<Recipe, Curve> curves;
  auto& curve = curves[recipe];
  if (curve.loss.empty()) {
    auto run = run_parity({.reference = kReference, .recipe = recipe}, std::make_shared<ThreadPool>(2), posix_files(),
                          nullptr, nullptr);
    EXPECT_TRUE(run.ok()) << run.status().message();
    if (run.ok()) curve = {run->loss, run->grad_norm, run->eval_loss};
    std::printf("%s: %zu steps, eval %.5f, %.0f tokens/s\n", std::string(recipe_name(recipe)).c_str(),
                curve.loss.size(), curve.eval_loss, run.ok() ? static_cast<double>(run->tokens) / run->seconds : 0.0);
  }
  return curve;
}

double largest(const Curve& a, const Curve& b, size_t to) {
  double worst = 0;
  for (size_t i = 0; i < to; ++i) worst = std::max(worst, std::fabs(a.loss[i] - b.loss[i]));
  return worst;
}

double mean_difference(const Curve& a, const Curve& b) {
  double sum = 0;
  for (size_t i = 0; i < kSteps; ++i) sum += std::fabs(a.loss[i] - b.loss[i]);
  return sum / kSteps;
}

double tail(const Curve& curve) {
  double sum = 0;
  for (size_t i = kSteps - 20; i < kSteps; ++i) sum += curve.loss[i];
  return sum / 20;
}

TEST(ParityFull, Fp32StaysCloserToFp64ThanTorch) {
  const Curve truth = recorded("fp64"), torch = recorded("fp32");
  const Curve& ours = trained(Recipe::kFp32);
  ASSERT_EQ(ours.loss.size(), kSteps);
  std::printf("fp32: step 1 %.2g, steps 1-10 %.2g, all %.2g (torch %.2g); mean %.2g (torch %.2g); eval %+.2g\n",
              std::fabs(ours.loss[0] - truth.loss[0]), largest(ours, truth, 10), largest(ours, truth, kSteps),
              largest(torch, truth, kSteps), mean_difference(ours, truth), mean_difference(torch, truth),
              ours.eval_loss - truth.eval_loss);
  EXPECT_LE(std::fabs(ours.loss[0] - truth.loss[0]), 2e-6);
  EXPECT_LE(largest(ours, truth, 10), 1e-5);
  EXPECT_LE(largest(ours, truth, kSteps), 5e-3);
  EXPECT_LE(mean_difference(ours, truth), mean_difference(torch, truth));
}

TEST(ParityFull, Bf16EndsWhereFp64Does) {
  const Curve truth = recorded("fp64");
  const Curve& ours = trained(Recipe::kBf16);
  ASSERT_EQ(ours.loss.size(), kSteps);
  std::printf("bf16: step 1 %.2g, steps 1-10 %.2g, last 20 %+.2g, eval %+.2g\n",
              std::fabs(ours.loss[0] - truth.loss[0]), largest(ours, truth, 10), tail(ours) - tail(truth),
              ours.eval_loss - truth.eval_loss);
  EXPECT_LE(std::fabs(ours.loss[0] - truth.loss[0]), 1e-4);
  EXPECT_LE(largest(ours, truth, 10), 2e-2);
  EXPECT_LE(std::fabs(tail(ours) - tail(truth)), 1e-2);
  EXPECT_LE(std::fabs(ours.eval_loss - truth.eval_loss), 1.5e-2);
}

TEST(ParityFull, Fp8EndsWithinTwoPercentOfBf16) {
  const Curve& bf16 = trained(Recipe::kBf16);
  ASSERT_EQ(bf16.loss.size(), kSteps);
  for (Recipe recipe : {Recipe::kFp8Block, Recipe::kFp8Tensor}) {
    const Curve& ours = trained(recipe);
    ASSERT_EQ(ours.loss.size(), kSteps);
    std::printf("%s: last 20 %+.3g%%, eval %+.3g%% of bf16\n", std::string(recipe_name(recipe)).c_str(),
                100 * (tail(ours) / tail(bf16) - 1), 100 * (ours.eval_loss / bf16.eval_loss - 1));
    EXPECT_LE(tail(ours), 1.02 * tail(bf16));
    EXPECT_LE(ours.eval_loss, 1.02 * bf16.eval_loss);
  }
}

}  // namespace
}  // namespace invar
