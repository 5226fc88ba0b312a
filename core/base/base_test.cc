#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <vector>

#include "core/base/file.h"
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

TEST(ThreadPool, AnExceptionReachesTheCallerFromAnyWorker) {
  ThreadPool pool(3);
  for (int64_t thrower : {0, 7, 63}) {
    EXPECT_THROW(pool.parallel_for(64,
                                   [&](int64_t item, int) {
                                     if (item == thrower) throw std::bad_alloc();
                                   }),
                 std::bad_alloc);
    std::atomic<int> total{0};
    pool.parallel_for(64, [&](int64_t, int) { total++; });
    EXPECT_EQ(total, 64) << "the pool goes on";
  }
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

TEST(PosixFiles, PipesAndDevicesAreRefusedWithoutWaiting) {
  const std::string pipe = testing::TempDir() + "/invar-pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(posix_files().open(pipe).status().reason(), "file.not_regular");
  EXPECT_FALSE(posix_files().create(pipe).ok());  // nobody reads it
  EXPECT_EQ(posix_files().open("/dev/zero").status().reason(), "file.not_regular");
  EXPECT_EQ(posix_files().create("/dev/null").status().reason(), "file.not_regular");
  ::unlink(pipe.c_str());
}

TEST(Status, ContextGoesInFrontOfTheMessage) {
  const Status status = Error(Code::kDataLoss, "a.b", "is broken").with_context("file");
  EXPECT_EQ(status.message(), "file: is broken");
  EXPECT_EQ(status.reason(), "a.b");
}

}  // namespace
}  // namespace invar
