#include "core/precision/ladder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace invar {
namespace {

LadderOptions options() {
  LadderOptions options;
  options.recipe = Recipe::kFp8Block;
  options.warmup_steps = 20;
  options.min_samples = 8;
  options.cooldown_steps = 5;
  options.max_fallbacks = 2;
  return options;
}

// Loss and norm with a little regular noise, so that the deviation is not zero.
LadderObservation calm(int step) { return {true, 3.0 + 0.03 * (step % 3), 1.0 + 0.05 * (step % 4)}; }

void run_calm(PrecisionLadder& ladder, int steps) {
  for (int step = 0; step < steps; ++step) ladder.observe(calm(step));
}

TEST(Ladder, WarmsUpForExactlyTheGivenSteps) {
  PrecisionLadder ladder(options());
  for (int step = 0; step < 20; ++step) {
    EXPECT_EQ(ladder.recipe(), Recipe::kBf16) << step;
    const auto decision = ladder.observe(calm(step));
    EXPECT_EQ(decision.changed(), step == 19);
  }
  EXPECT_EQ(ladder.recipe(), Recipe::kFp8Block);
}

TEST(Ladder, StartsInTheRecipeWithoutWarmUp) {
  LadderOptions without = options();
  without.warmup_steps = 0;
  EXPECT_EQ(PrecisionLadder(without).recipe(), Recipe::kFp8Block);
}

TEST(Ladder, KeepsARecipeWithoutFp8) {
  LadderOptions bf16 = options();
  bf16.recipe = Recipe::kFp32;
  PrecisionLadder ladder(bf16);
  run_calm(ladder, 30);
  EXPECT_FALSE(ladder.observe({false, 0, 0}).changed());
  EXPECT_EQ(ladder.recipe(), Recipe::kFp32);
}

TEST(Ladder, FixedKeepsAnFp8RecipeWhateverHappens) {
  LadderOptions fixed = options();
  fixed.fixed = true;
  PrecisionLadder ladder(fixed);
  EXPECT_FALSE(ladder.observe({false, 0, 0}).changed());
  EXPECT_EQ(ladder.recipe(), Recipe::kFp8Block);
}

TEST(Ladder, NonFiniteGoesBackToBf16AndReturnsAfterTheCoolDown) {
  PrecisionLadder ladder(options());
  run_calm(ladder, 25);
  const auto decision = ladder.observe({false, std::numeric_limits<double>::quiet_NaN(), 0});
  EXPECT_TRUE(decision.changed());
  EXPECT_NE(decision.reason.find("not finite"), std::string::npos);
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(ladder.recipe(), Recipe::kBf16);
    ladder.observe(calm(step));
  }
  EXPECT_EQ(ladder.recipe(), Recipe::kFp8Block);
}

TEST(Ladder, LossSpikeLeavesFp8AndOrdinaryNoiseDoesNot) {
  PrecisionLadder ladder(options());
  run_calm(ladder, 40);
  EXPECT_FALSE(ladder.observe({true, 3.15, 1.0}).changed());
  const auto decision = ladder.observe({true, 4.5, 1.0});
  EXPECT_TRUE(decision.changed());
  EXPECT_NE(decision.reason.find("loss 4.5"), std::string::npos);
}

TEST(Ladder, GradientNormSpikeLeavesFp8) {
  PrecisionLadder ladder(options());
  run_calm(ladder, 40);
  EXPECT_TRUE(ladder.observe({true, 3.0, 5.0}).changed());
  EXPECT_EQ(ladder.state(), LadderState::kCooldown);
}

TEST(Ladder, AFallingLossIsNoAnomaly) {
  PrecisionLadder ladder(options());
  for (int step = 0; step < 200; ++step) {
    EXPECT_FALSE(ladder.observe({true, 9.0 * std::exp(-0.01 * step), 2.0 * std::exp(-0.01 * step)}).anomaly) << step;
  }
}

TEST(Ladder, StaysInBf16AfterTheLastAllowedAnomaly) {
  PrecisionLadder ladder(options());
  run_calm(ladder, 25);
  ladder.observe({false, 0, 0});
  run_calm(ladder, 5);
  EXPECT_EQ(ladder.recipe(), Recipe::kFp8Block);
  ladder.observe({false, 0, 0});
  EXPECT_EQ(ladder.state(), LadderState::kExhausted);
  run_calm(ladder, 100);
  EXPECT_EQ(ladder.recipe(), Recipe::kBf16);
}

TEST(Ladder, ASpikeNeedsBothDeviationAndRatio) {
  LadderOptions strict = options();
  strict.spike_ratio = 2;
  PrecisionLadder ladder(strict);
  run_calm(ladder, 40);
  EXPECT_FALSE(ladder.observe({true, 4.5, 1.0}).changed());
  EXPECT_TRUE(ladder.observe({true, 6.2, 1.0}).changed());
}

TEST(Ladder, EndsInBf16WhenAskedTo) {
  LadderOptions tail = options();
  tail.total_steps = 50;
  tail.final_steps = 10;
  PrecisionLadder ladder(tail);
  for (int step = 0; step < 50; ++step) {
    EXPECT_EQ(ladder.recipe(), step < 20 || step >= 40 ? Recipe::kBf16 : Recipe::kFp8Block) << step;
    const auto decision = ladder.observe(calm(step));
    EXPECT_EQ(decision.cause, step == 19   ? LadderCause::kWarmupDone
                              : step == 39 ? LadderCause::kFinal
                                           : LadderCause::kNone);
  }
}

TEST(Ladder, RestoredLadderDecidesTheSame) {
  PrecisionLadder first(options());
  run_calm(first, 33);
  PrecisionLadder second(options());
  ASSERT_TRUE(second.restore(first.save()).ok());
  EXPECT_EQ(second.save(), first.save());
  for (int step = 0; step < 40; ++step) {
    const LadderObservation observation = step == 7 ? LadderObservation{true, 9.1, 1.0} : calm(step);
    EXPECT_EQ(first.observe(observation).reason, second.observe(observation).reason);
    EXPECT_EQ(first.recipe(), second.recipe());
  }
  EXPECT_EQ(second.save(), first.save());
}

TEST(Ladder, RefusesForeignStateAndStaysAsItWas) {
  PrecisionLadder ladder(options());
  run_calm(ladder, 22);
  const std::string before = ladder.save();
  for (const char* text :
       {"", "[]", "{}", R"({"state":9,"steps":0,"steps_in_state":0,"fallbacks":0,"loss":[],"grad_norm":[]})",
        R"({"state":2,"steps":0,"steps_in_state":0,"fallbacks":0,"loss":[1],"grad_norm":[]})",
        R"({"state":0,"steps":0,"steps_in_state":0,"fallbacks":0,"loss":[],"grad_norm":[]})"}) {
    const Status status = ladder.restore(text);
    EXPECT_EQ(status.reason(), "precision.bad_ladder_state") << text;
    EXPECT_EQ(ladder.save(), before);
  }
}

}  // namespace
}  // namespace invar
