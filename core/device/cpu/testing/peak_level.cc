#include "core/device/cpu/simd/vector.h"

namespace invar::cpu::INVAR_LEVEL_NAME {

// Runs `rounds` * 100 vector multiply-adds; returns their floating-point operations.
double run_fmas(int64_t rounds, float* keep);

double run_fmas(int64_t rounds, float* keep) {
  F32 sums[10];
  for (int i = 0; i < 10; ++i) sums[i] = set(static_cast<float>(i));
  const F32 factor = set(0.999f), addend = set(0.001f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int repeat = 0; repeat < 10; ++repeat) {
#pragma GCC unroll 10
      for (int i = 0; i < 10; ++i) {
        sums[i] = fma(sums[i], factor, addend);
        asm volatile("" : "+v"(sums[i]));
      }
    }
  }
  for (int i = 1; i < 10; ++i) sums[0] += sums[i];
  *keep = add_lanes(sums[0]);
  return static_cast<double>(rounds) * 100 * 2 * kLanes;
}

}  // namespace invar::cpu::INVAR_LEVEL_NAME
