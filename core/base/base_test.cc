#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "core/base/glob.h"
#include "core/base/rng.h"
#include "core/base/status.h"
#include "core/base/thread_pool.h"

namespace invar {
namespace {

TEST(Philox, GivesThePublishedVectors) {
  // Known answers of the Random123 distribution for Philox 4x32-10.
  EXPECT_EQ(philox4x32(0, 0, 0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32(~0ull, ~0ull, ~0ull), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

// A million values: moments within 4 standard errors (1/1000 for the mean, sqrt(2)/1000 for the variance, sqrt(96)/1000
// for the fourth moment), and the two tails beyond 3.
TEST(Normal, HasTheMomentsAndTailsOfTheDistribution) {
  std::vector<float> values(1000000);
  fill_normal(5, 6, 0, values);
  double mean = 0, square = 0, fourth = 0, beyond = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = values[i], n = static_cast<double>(values.size());
    mean += v / n;
    square += v * v / n;
    fourth += v * v * v * v / n;
    beyond += (v > 3 || v < -3) / n;
    neighbours += i > 0 ? v * values[i - 1] / n : 0;
  }
  EXPECT_NEAR(mean, 0, 0.004);
  EXPECT_NEAR(square, 1, 0.006);
  EXPECT_NEAR(fourth, 3, 0.04);
  EXPECT_NEAR(beyond, 0.0027, 0.0002);
  EXPECT_NEAR(neighbours, 0, 0.004);
}

TEST(Normal, IsTheSameInAnyPieces) {
  std::vector<float> values(100);
  fill_normal(5, 6, 0, std::span(values).first(7));
  fill_normal(5, 6, 7, std::span(values).subspan(7, 1));
  fill_normal(5, 6, 8, std::span(values).subspan(8));
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], normal_at(5, 6, i));
  EXPECT_NE(normal_at(5, 6, 0), normal_at(5, 7, 0));
  EXPECT_NE(normal_at(5, 6, 0), normal_at(6, 6, 0));
}

TEST(ThreadPool, RunsEveryItemOnceAtAnyThreadCount) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> seen(round + 1);
      pool.parallel_for(round + 1, [&](int64_t item, int worker) {
        ASSERT_LT(worker, threads);
        seen[item]++;
      });
      for (auto& count : seen) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, NestedCallRunsInline) {
  ThreadPool pool(3);
  std::atomic<int> total{0};
  pool.parallel_for(7, [&](int64_t, int) { pool.parallel_for(5, [&](int64_t, int) { total++; }); });
  EXPECT_EQ(total, 35);
}

TEST(Glob, MatchesWholeNamesOnly) {
  EXPECT_TRUE(glob_match("model.layers.*.mlp.down_proj.weight", "model.layers.12.mlp.down_proj.weight"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*a*b*", "xxaaybb"));
  EXPECT_TRUE(glob_match("layer?", "layer7"));
  EXPECT_FALSE(glob_match("layer?", "layer"));
  EXPECT_FALSE(glob_match("layer", "layers"));
  EXPECT_FALSE(glob_match("*down", "model.down_proj"));
  EXPECT_FALSE(glob_match("", "x"));
}

TEST(Status, ContextGoesInFrontOfTheMessage) {
  const Status status = Error(Code::kDataLoss, "a.b", "is broken").with_context("file");
  EXPECT_EQ(status.message(), "file: is broken");
  EXPECT_EQ(status.reason(), "a.b");
}

}  // namespace
}  // namespace invar
