// The learning rate of each step.
//
// Steps count from 0 and only successful ones count. While t < warmup: peak * (t + 1) / warmup, so that the first step
// already moves and step warmup - 1 runs at the peak. Then the decay over [warmup, end): at t = warmup the peak, and
// `min_ratio * peak` would be reached at t = end; from there on it stays.
// Thread rule: values, no sharing.
#pragma once

#include <cstdint>

namespace invar {

enum class ScheduleKind : int32_t { kConstant = 1, kCosine = 2, kLinear = 3 };

struct Schedule {
  ScheduleKind kind = ScheduleKind::kCosine;
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  int64_t end_step = 0;  // where the decay ends; at most warmup_steps: no decay phase
  double min_ratio = 0.1;

  double lr_at(int64_t step) const;
};

}  // namespace invar
