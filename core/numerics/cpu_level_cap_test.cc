// Run with INVAR_CPU_LEVEL=avx2 (see BUILD): the cap holds for the whole process.
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/numerics/cpu_features.h"

namespace invar {
namespace {

TEST(CpuLevelCap, TheEnvironmentCapsEveryReport) {
  ASSERT_STREQ(std::getenv("INVAR_CPU_LEVEL"), "avx2");
  EXPECT_LE(cpu_level(), CpuLevel::kAvx2);
  EXPECT_FALSE(cpu_features().avx512);
  EXPECT_FALSE(cpu_features().amx_bf16);
  EXPECT_LE(usable_cpu_levels().back(), CpuLevel::kAvx2);
}

}  // namespace
}  // namespace invar
