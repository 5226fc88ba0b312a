#include "core/memory/arena.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/base/rng.h"

namespace invar {
namespace {

struct Memory {
  explicit Memory(Arena& arena)
      : data(std::aligned_alloc(Arena::kAlignment, static_cast<size_t>(arena.bytes())), std::free) {
    arena.bind(data.get());
  }
  std::unique_ptr<void, decltype(&std::free)> data;
};

// Two temporaries one after the other, under one that lives throughout.
Status simple_pass(Arena& arena, int64_t bytes = 640, const char* second = "second") {
  INVAR_ASSIGN(ArenaBlock whole, arena.acquire("whole", 128));
  { INVAR_ASSIGN(ArenaBlock block, arena.acquire("first", 640)); }
  INVAR_ASSIGN(ArenaBlock block, arena.acquire(second, bytes));
  return {};
}

TEST(Arena, BlocksThatNeverLiveTogetherShareBytes) {
  Arena arena;
  ASSERT_TRUE(arena.plan("pass", [&] { return simple_pass(arena); }).ok());
  EXPECT_EQ(arena.bytes(), 640 + 128);
  EXPECT_EQ(arena.reports()[0].unshared_bytes, 640 * 2 + 128);
}

TEST(Arena, RefusesAPassThatDiffersFromThePlan) {
  Arena arena;
  const int program = *arena.plan("pass", [&] { return simple_pass(arena); });
  Memory memory(arena);
  const auto run = [&](auto&& pass) {
    EXPECT_TRUE(arena.begin(program).ok());
    const Status status = pass();
    const Status end = arena.end();
    return status.ok() ? end : status;
  };
  EXPECT_TRUE(run([&] { return simple_pass(arena); }).ok());
  EXPECT_TRUE(run([&] { return simple_pass(arena, 64); }).ok()) << "smaller than planned is fine";
  const Status larger = run([&] { return simple_pass(arena, 641); });
  EXPECT_EQ(larger.reason(), "memory.plan_broken");
  EXPECT_NE(larger.message().find("\"second\" of 704 bytes"), std::string::npos) << larger.message();
  EXPECT_EQ(run([&] { return simple_pass(arena, 640, "other"); }).reason(), "memory.plan_broken");
  EXPECT_EQ(run([&] { return arena.acquire("whole", 128).status(); }).reason(), "memory.plan_broken");
  EXPECT_TRUE(run([&] { return simple_pass(arena); }).ok()) << "a broken pass does not poison the next";
}

TEST(Arena, RefusesALifetimeThatEndsOutOfOrder) {
  Arena arena;
  const auto pass = [&](bool swapped) -> Status {
    INVAR_ASSIGN(ArenaBlock a, arena.acquire("a", 64));
    INVAR_ASSIGN(ArenaBlock b, arena.acquire("b", 64));
    (swapped ? b : a).release();
    (swapped ? a : b).release();
    return {};
  };
  const int program = *arena.plan("pass", [&] { return pass(false); });
  Memory memory(arena);
  ASSERT_TRUE(arena.begin(program).ok());
  EXPECT_TRUE(pass(true).ok());
  EXPECT_EQ(arena.end().reason(), "memory.plan_broken");
}

// Random lifetimes: every block keeps its pattern until it is released.
TEST(Arena, LiveBlocksNeverOverlap) {
  Arena arena;
  const auto pass = [&]() -> Status {
    Rng rng(7);
    std::vector<std::pair<ArenaBlock, std::vector<unsigned char>>> live;
    for (int step = 0; step < 400; ++step) {
      if (live.size() < 12 && (live.empty() || rng.next_below(2) == 0)) {
        const int64_t bytes = 1 + static_cast<int64_t>(rng.next_below(5000));
        INVAR_ASSIGN(ArenaBlock block, arena.acquire("block", bytes));
        std::vector<unsigned char> pattern(static_cast<size_t>(bytes), static_cast<unsigned char>(step));
        if (!arena.planning()) std::memcpy(block.data(), pattern.data(), pattern.size());
        live.emplace_back(std::move(block), std::move(pattern));
      } else {
        const size_t victim = rng.next_below(live.size());
        const auto& [block, pattern] = live[victim];
        if (!arena.planning()) {
          EXPECT_EQ(std::memcmp(block.data(), pattern.data(), pattern.size()), 0);
        }
        live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
      }
    }
    while (!live.empty()) live.pop_back();
    return {};
  };
  const int program = *arena.plan("pass", pass);
  Memory memory(arena);
  arena.poison_released(true);
  EXPECT_LT(arena.bytes(), arena.reports()[0].unshared_bytes / 4);
  ASSERT_TRUE(arena.begin(program).ok());
  EXPECT_TRUE(pass().ok());
  EXPECT_TRUE(arena.end().ok());
}

}  // namespace
}  // namespace invar
