#include "core/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace invar {
namespace {

TEST(Schedule, WarmUpStartsAboveZeroAndReachesThePeakAtItsLastStep) {
  const Schedule schedule{.kind = ScheduleKind::kCosine, .peak = 1e-3, .warmup_steps = 20, .end_step = 300};
  EXPECT_DOUBLE_EQ(schedule.lr_at(0), 1e-3 / 20);
  EXPECT_DOUBLE_EQ(schedule.lr_at(19), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.lr_at(20), 1e-3) << "the decay starts at its peak";
}

TEST(Schedule, CosineEqualsItsFormulaAndStaysAtTheFloor) {
  const Schedule schedule{.kind = ScheduleKind::kCosine, .peak = 1e-3, .warmup_steps = 20, .end_step = 300};
  for (int t : {21, 160, 299}) {
    EXPECT_DOUBLE_EQ(schedule.lr_at(t), 1e-4 + 9e-4 / 2 * (1 + std::cos(M_PI * (t - 20) / 280.0)));
  }
  EXPECT_DOUBLE_EQ(schedule.lr_at(300), 1e-4);
  EXPECT_DOUBLE_EQ(schedule.lr_at(100000), 1e-4);
}

TEST(Schedule, LinearAndConstant) {
  const Schedule linear{.kind = ScheduleKind::kLinear, .peak = 2, .warmup_steps = 0, .end_step = 10, .min_ratio = 0};
  EXPECT_DOUBLE_EQ(linear.lr_at(0), 2);
  EXPECT_DOUBLE_EQ(linear.lr_at(5), 1);
  EXPECT_DOUBLE_EQ(linear.lr_at(10), 0);
  const Schedule constant{.kind = ScheduleKind::kConstant, .peak = 2, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(constant.lr_at(1), 1);
  EXPECT_DOUBLE_EQ(constant.lr_at(1000), 2);
}

TEST(Schedule, NoDecayPhaseGoesStraightToTheFloor) {
  const Schedule schedule{.kind = ScheduleKind::kCosine, .peak = 1, .warmup_steps = 5, .end_step = 5, .min_ratio = 0.5};
  EXPECT_DOUBLE_EQ(schedule.lr_at(4), 1);
  EXPECT_DOUBLE_EQ(schedule.lr_at(5), 0.5);
}

}  // namespace
}  // namespace invar
