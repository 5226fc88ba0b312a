#include "core/precision/loss_scaler.h"

#include <gtest/gtest.h>

namespace invar {
namespace {

LossScalerOptions small() {
  LossScalerOptions options;
  options.initial = 8;
  options.growth_interval = 3;
  options.maximum = 32;
  return options;
}

TEST(LossScaler, GrowsAfterTheIntervalUpToTheMaximum) {
  LossScaler scaler(small());
  EXPECT_EQ(scaler.update(false), ScalerOutcome::kKept);
  EXPECT_EQ(scaler.update(false), ScalerOutcome::kKept);
  EXPECT_EQ(scaler.update(false), ScalerOutcome::kGrew);
  EXPECT_EQ(scaler.scale(), 16);
  for (int step = 0; step < 6; ++step) (void)scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32);
}

TEST(LossScaler, HalvesOnOverflowAndCountsAgain) {
  LossScaler scaler(small());
  (void)scaler.update(false);
  (void)scaler.update(false);
  EXPECT_EQ(scaler.update(true), ScalerOutcome::kBackedOff);
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_EQ(scaler.update(false), ScalerOutcome::kKept);
  EXPECT_EQ(scaler.update(false), ScalerOutcome::kKept);
  EXPECT_EQ(scaler.update(false), ScalerOutcome::kGrew);
}

TEST(LossScaler, HysteresisIsSpentBeforeTheScaleAndRefilledByGrowth) {
  LossScalerOptions options = small();
  options.hysteresis = 2;
  LossScaler scaler(options);
  EXPECT_EQ(scaler.update(true), ScalerOutcome::kTolerated);
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_EQ(scaler.update(true), ScalerOutcome::kBackedOff);
  for (int step = 0; step < 3; ++step) (void)scaler.update(false);
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_EQ(scaler.update(true), ScalerOutcome::kTolerated);
}

TEST(LossScaler, SaysWhenItCannotGoLower) {
  LossScaler scaler(small());
  for (int step = 0; step < 3; ++step) EXPECT_EQ(scaler.update(true), ScalerOutcome::kBackedOff);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_EQ(scaler.update(true), ScalerOutcome::kAtMinimum);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, FixedScaleNeverMoves) {
  LossScalerOptions options;
  options.dynamic = false;
  options.initial = 1;
  LossScaler scaler(options);
  for (int step = 0; step < 5000; ++step) (void)scaler.update(step % 7 == 0);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, RestoredScalerContinuesInTheMiddleOfAnInterval) {
  LossScaler first(small());
  (void)first.update(false);
  (void)first.update(false);
  LossScaler second(small());
  ASSERT_TRUE(second.restore(first.save()).ok());
  EXPECT_EQ(second.update(false), ScalerOutcome::kGrew);
  EXPECT_EQ(second.restore("{\"scale\":0,\"good_steps\":0,\"credits\":1}").reason(), "precision.bad_scaler_state");
  EXPECT_EQ(second.restore("nonsense").reason(), "precision.bad_scaler_state");
  EXPECT_EQ(second.scale(), 16);
}

}  // namespace
}  // namespace invar
