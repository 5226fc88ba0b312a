#include "core/device/limits.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <vector>

#include "core/device/cpu/bench/streams.h"

namespace invar {
namespace {

TEST(Streams, TriadReadAndWriteTouchEveryElement) {
  constexpr int64_t kCount = 3 * cpu::kStreamUnit;
  alignas(64) static float a[kCount], b[kCount], c[kCount];
  for (int64_t i = 0; i < kCount; ++i) b[i] = static_cast<float>(i), c[i] = 2;
  cpu::stream_triad(a, b, c, kCount);
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(a[i], static_cast<float>(i) + 6) << i;
  EXPECT_EQ(cpu::stream_read(c, kCount), 2.0f * kCount);
  cpu::stream_write(a, kCount);
  for (int64_t i = 0; i < kCount; ++i) ASSERT_EQ(a[i], 3) << i;
}

int64_t resident_pages() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident;
}

TEST(MachineLimits, ReadsMemoryAndNotOneSharedPageOfZeros) {
  auto pool = std::make_shared<ThreadPool>(1);
  auto device = Device::open("cpu", pool);
  ASSERT_TRUE(device.ok());
  const int64_t before = resident_pages();
  if (before == 0) GTEST_SKIP() << "the system does not tell what is resident";
  MachineLimits limits(*pool);
  ASSERT_TRUE(limits.use_memory(**device).ok());
  // Three arrays of 192 MiB in pages of 4 KiB, nearly all of them; larger pages are counted in the same unit.
  EXPECT_GT(resident_pages() - before, (int64_t{3} * 192 << 20) / 4096 * 9 / 10);
}

TEST(MachineLimits, SamplesArePositiveAndKeepTheBest) {
  auto pool = std::make_shared<ThreadPool>(2);
  auto device = Device::open("cpu", pool);
  ASSERT_TRUE(device.ok());
  MachineLimits limits(*pool);
  limits.sample_triad();  // no arrays yet
  EXPECT_EQ(limits.triad(), 0);
  ASSERT_TRUE(limits.use_memory(**device).ok());
  limits.sample_triad();
  limits.sample_read();
  limits.sample_write();
  const double first = limits.triad();
  limits.sample_triad();
  EXPECT_GE(limits.triad(), first);
  EXPECT_GT(limits.read(), 0);
  EXPECT_GT(limits.write(), 0);
  std::printf("triad %.1f, read %.1f, write %.1f GB/s\n", limits.triad(), limits.read(), limits.write());
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    limits.sample_products(dtype);
    std::printf("products on %s %.1f GFLOP/s\n", std::string(name_of(dtype)).c_str(), limits.products());
  }
}

}  // namespace
}  // namespace invar
