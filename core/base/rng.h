// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
// as easy as 1, 2, 3", SC 2011). The value depends on (seed, stream, counter) only, so it is the same
// for any number of threads, ranks or shards.
#pragma once

#include <array>
#include <cstdint>

namespace invar {

// Four words for one 128-bit counter under a 64-bit key.
constexpr std::array<uint32_t, 4> philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// A sequence over one (seed, stream). `position` is the number of 64-bit draws so far: save and restore it.
class Rng {
 public:
  explicit Rng(uint64_t seed, uint64_t stream = 0, uint64_t position = 0)
      : seed_(seed), stream_(stream), position_(position) {}

  uint64_t next_u64() {
    const auto words = philox4x32(seed_, position_++, stream_);
    return uint64_t{words[1]} << 32 | words[0];
  }
  // Uniform in [0, 1).
  double next_unit() { return static_cast<double>(next_u64() >> 11) * 0x1p-53; }
  // Uniform in [0, bound), bound > 0, without modulo bias.
  uint64_t next_below(uint64_t bound);
  uint64_t position() const { return position_; }

 private:
  uint64_t seed_, stream_, position_;
};

}  // namespace invar
