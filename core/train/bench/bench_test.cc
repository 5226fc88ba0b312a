#include "core/train/bench/bench.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace invar {
namespace {

v1::BenchConfig small(v1::BenchKind kind) {
  v1::BenchConfig config;
  config.set_kind(kind);
  config.set_shape("tiny");
  config.set_recipe(v1::RECIPE_BF16);
  config.set_sequence_length(16);
  config.set_micro_batch(1);
  config.set_repeats(2);
  config.set_rows(33), config.set_cols(65), config.set_inner(17);
  config.set_elements(4099);
  config.set_heads(4), config.set_kv_heads(2), config.set_head_dim(64);
  config.set_bytes(1 << 20);
  return config;
}

v1::BenchReport run(const v1::BenchConfig& config) {
  BenchEnvironment environment;
  environment.pool = std::make_shared<ThreadPool>(2);
  environment.files = &posix_files();
  auto report = run_bench(config, environment);
  EXPECT_TRUE(report.ok()) << report.status().message();
  return report.ok() ? *report : v1::BenchReport();
}

void expect_limits(const v1::BenchReport& report, int at_least) {
  EXPECT_GE(report.limits_size(), at_least);
  EXPECT_GT(report.seconds_best(), 0);
  EXPECT_GE(report.seconds_median(), report.seconds_best());
  for (const v1::LimitShare& limit : report.limits()) {
    EXPECT_GT(limit.achieved(), 0) << limit.name();
    EXPECT_GT(limit.limit(), 0) << limit.name();
    EXPECT_NEAR(limit.share(), limit.achieved() / limit.limit(), 1e-12) << limit.name();
  }
}

TEST(Bench, TrainRatesEveryProduct) {
  const v1::BenchReport report = run(small(v1::BENCH_KIND_TRAIN));
  expect_limits(report, 7);
  EXPECT_GT(report.tokens_per_second(), 0);
  EXPECT_GT(report.first_step_seconds(), 0);
  EXPECT_GT(report.resident_bytes(), 0);
}

TEST(Bench, GemmTakesBothRecipes) {
  expect_limits(run(small(v1::BENCH_KIND_GEMM)), 6);
  v1::BenchConfig config = small(v1::BENCH_KIND_GEMM);
  config.set_recipe(v1::RECIPE_FP32);
  expect_limits(run(config), 6);
}

TEST(Bench, AdamwAttentionAndGenerateReportTheirLimit) {
  expect_limits(run(small(v1::BENCH_KIND_ADAMW)), 2);
  expect_limits(run(small(v1::BENCH_KIND_ATTENTION)), 4);
  const v1::BenchReport generated = run(small(v1::BENCH_KIND_GENERATE));
  expect_limits(generated, 3);
  EXPECT_GT(generated.tokens_per_second_median(), 0);
}

TEST(Bench, ConvertMakesItsCheckpointAndLeavesNothingBehind) {
  const std::string scratch = testing::TempDir() + "bench_convert";
  std::filesystem::create_directories(scratch);
  v1::BenchConfig config = small(v1::BENCH_KIND_CONVERT);
  config.set_scratch(scratch);
  expect_limits(run(config), 4);
  EXPECT_TRUE(std::filesystem::is_empty(scratch));
}

TEST(Bench, WrongConfigsAreRefused) {
  const auto refused = [](const v1::BenchConfig& config, std::string_view reason) {
    BenchEnvironment environment;
    environment.files = &posix_files();
    const auto report = run_bench(config, environment);
    ASSERT_FALSE(report.ok()) << reason;
    EXPECT_EQ(report.status().reason(), reason);
  };
  v1::BenchConfig config = small(v1::BENCH_KIND_GEMM);
  config.set_recipe(v1::RECIPE_FP8_TENSOR);
  refused(config, "bench.recipe");
  config = small(v1::BENCH_KIND_ATTENTION);
  config.set_kv_heads(3);
  refused(config, "bench.heads");
  config = small(v1::BENCH_KIND_GENERATE);
  config.set_repeats(16);
  refused(config, "bench.context");
  config = small(v1::BENCH_KIND_TRAIN);
  config.set_shape("huge");
  refused(config, "bench.unknown_shape");
  refused(small(v1::BENCH_KIND_UNSPECIFIED), "config.missing_field");
}

}  // namespace
}  // namespace invar
