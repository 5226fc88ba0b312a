#include "core/precision/amax_history.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>

namespace invar {
namespace {

TEST(AmaxHistory, UsesTheMaximumOfMicroBatchesAndOfTheWindow) {
  AmaxHistory history(1, {.length = 3, .format_max = 448});
  EXPECT_EQ(history.scale(0), 1);
  EXPECT_TRUE(history.stage(0, 7));
  EXPECT_TRUE(history.stage(0, 2));
  EXPECT_EQ(history.scale(0), 1) << "a scale changes at the step boundary only";
  history.update();
  EXPECT_EQ(history.scale(0), 64);
  for (int step = 0; step < 2; ++step) {
    (void)history.stage(0, 1);
    history.update();
    EXPECT_EQ(history.scale(0), 64);
  }
  (void)history.stage(0, 1);
  history.update();
  EXPECT_EQ(history.scale(0), 448) << "7 has left the window";
}

TEST(AmaxHistory, UnusedSlotKeepsWindowAndScale) {
  AmaxHistory history(2, {.length = 2, .format_max = 448});
  (void)history.stage(0, 4);
  (void)history.stage(1, 4);
  history.update();
  for (int step = 0; step < 5; ++step) {
    (void)history.stage(1, 1);
    history.update();
  }
  EXPECT_EQ(history.scale(0), 112);
  EXPECT_EQ(history.scale(1), 448);
}

TEST(AmaxHistory, RefusesNonFiniteAndBoundsTheScale) {
  AmaxHistory history(1, {.length = 4, .format_max = 448});
  EXPECT_FALSE(history.stage(0, INFINITY));
  EXPECT_FALSE(history.stage(0, NAN));
  history.update();
  EXPECT_EQ(history.scale(0), 1);
  (void)history.stage(0, FLT_MIN / 1024);
  history.update();
  EXPECT_EQ(history.scale(0), FLT_MAX);
}

TEST(AmaxHistory, MarginLowersTheScaleByPowersOfTwo) {
  AmaxHistory history(1, {.length = 1, .margin = 2, .format_max = 448});
  (void)history.stage(0, 1);
  history.update();
  EXPECT_EQ(history.scale(0), 112);
}

TEST(AmaxHistory, RestoresStagedValuesToo) {
  AmaxHistory first(2, {.length = 3, .format_max = 448});
  (void)first.stage(0, 0.1f);
  first.update();
  (void)first.stage(1, 3.3f);
  AmaxHistory second(2, {.length = 3, .format_max = 448});
  ASSERT_TRUE(second.restore(first.save()).ok());
  first.update();
  second.update();
  EXPECT_EQ(first.save(), second.save());
  AmaxHistory other(3, {});
  EXPECT_EQ(other.restore(first.save()).reason(), "precision.bad_amax_state");
}

}  // namespace
}  // namespace invar
