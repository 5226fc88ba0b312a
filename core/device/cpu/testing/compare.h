// Comparing a kernel's result with the reference's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "core/device/cpu/testing/test_context.h"
#include "core/numerics/cpu_features.h"

namespace invar::cpu {

// |actual - expected| <= units * rounding unit of the dtype * (|expected| + scale). `scale` is the size of the
// terms that a value is the sum of: where they cancel, the error does not shrink with the result.
inline void expect_close(const Stored& actual, const Stored& expected, double units, double scale, const char* name) {
  ASSERT_EQ(actual.size(), expected.size());
  // A BF16 result may fall on the other side of a tie: one more of its units.
  const double unit = rounding_unit(actual.dtype());
  const double extra = actual.dtype() == kF32 ? units : 2 + units * 0x1p-16;
  int failures = 0;
  for (size_t i = 0; i < actual.size() && failures < 5; ++i) {
    const double want = expected.at(i), got = actual.at(i);
    if (std::isnan(want) && std::isnan(got)) continue;
    if (std::isinf(want) && want == got) continue;
    const double scaled = actual.dtype() == kF32 ? scale : scale * units * 0x1p-16 / extra;
    const double bound = extra * unit * (std::fabs(want) + scaled);
    if (!(std::fabs(got - want) <= bound)) {
      ++failures;
      ADD_FAILURE() << name << "[" << i << "] is " << got << ", not " << want << " within " << bound;
    }
  }
}

// Every level up to `highest` that this machine can run, lowest first. Most kernels have no version of their own above
// kAvx512, and no level is tested twice.
inline std::vector<Level> usable_levels(Level highest = Level::kAvx512) {
  std::vector<Level> levels;
  for (CpuLevel level : usable_cpu_levels()) {
    if (static_cast<Level>(level) <= highest) levels.push_back(static_cast<Level>(level));
  }
  return levels;
}

inline std::string level_test_name(const testing::TestParamInfo<Level>& info) {
  return std::string(cpu_level_name(static_cast<CpuLevel>(info.param)));
}

}  // namespace invar::cpu
