#include "core/numerics/cpu_features.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace invar {
namespace {

// The kernel lists a flag only when it also saves the registers: an independent reading of the same facts.
bool kernel_lists(const std::string& flag) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("flags", 0) != 0) continue;
    std::istringstream words(line);
    for (std::istream_iterator<std::string> word(words), end; word != end; ++word) {
      if (*word == flag) return true;
    }
    return false;
  }
  return false;
}

TEST(CpuFeatures, AgreeWithTheKernelsList) {
  const CpuFeatures& features = cpu_features();
  EXPECT_EQ(features.avx2, kernel_lists("avx2") && kernel_lists("fma") && kernel_lists("f16c"));
  EXPECT_EQ(features.avx512, kernel_lists("avx512f") && kernel_lists("avx512bw") && kernel_lists("avx512dq") &&
                                 kernel_lists("avx512vl") && kernel_lists("avx512cd"));
  EXPECT_EQ(features.avx512_bf16, kernel_lists("avx512_bf16"));
  EXPECT_EQ(features.avx512_fp16, kernel_lists("avx512_fp16"));
  EXPECT_EQ(features.amx_bf16, kernel_lists("amx_bf16"));
  std::printf("cpu features: %s, level %s\n", describe(features).c_str(),
              std::string(cpu_level_name(cpu_level())).c_str());
}

TEST(CpuFeatures, CapRemovesEverythingAboveALevel) {
  CpuFeatures all;
  all.avx2 = all.avx512 = all.avx512_bf16 = all.avx512_fp16 = all.avx512_vbmi = all.avx512_vnni = true;
  all.amx_tile = all.amx_bf16 = all.amx_int8 = true;
  for (int level = 0; level <= static_cast<int>(CpuLevel::kAmx); ++level) {
    EXPECT_EQ(level_of(capped(all, static_cast<CpuLevel>(level))), static_cast<CpuLevel>(level));
  }
  EXPECT_EQ(describe(capped(all, CpuLevel::kPortable)), "portable");
}

TEST(CpuFeatures, LevelNamesGoBothWays) {
  for (int level = 0; level <= static_cast<int>(CpuLevel::kAmx); ++level) {
    EXPECT_EQ(cpu_level_from_name(cpu_level_name(static_cast<CpuLevel>(level))), static_cast<CpuLevel>(level));
  }
  EXPECT_EQ(cpu_level_from_name("sse9"), CpuLevel::kAmx);
}

TEST(CpuFeatures, UsableLevelsStartPortableAndRise) {
  const auto levels = usable_cpu_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), CpuLevel::kPortable);
  EXPECT_EQ(levels.back(), cpu_level());
}

}  // namespace
}  // namespace invar
