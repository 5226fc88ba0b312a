#include "core/optim/schedule.h"

#include <cmath>

namespace invar {

double Schedule::lr_at(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  if (kind == ScheduleKind::kConstant) return peak;
  const double lowest = peak * min_ratio;
  if (step >= end_step) return lowest;
  const double progress = static_cast<double>(step - warmup_steps) / static_cast<double>(end_step - warmup_steps);
  if (kind == ScheduleKind::kLinear) return lowest + (peak - lowest) * (1 - progress);
  return lowest + (peak - lowest) / 2 * (1 + std::cos(M_PI * progress));
}

}  // namespace invar
