#include "core/checkpoint/tile_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace invar {
namespace {

TEST(TileHash, IsTheSameOnEveryLevel) {
  std::vector<uint8_t> bytes(5000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * i >> 3);
  for (int64_t n : {0, 1, 16, 17, 128, 129, 240, 241, 1024, 5000}) {
    const uint64_t want = tile_hash(bytes.data(), n, CpuLevel::kPortable);
    for (CpuLevel level : usable_cpu_levels()) {
      EXPECT_EQ(tile_hash(bytes.data(), n, level), want) << cpu_level_name(level) << " " << n;
    }
  }
}

}  // namespace
}  // namespace invar
