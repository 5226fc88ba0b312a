#include "core/device/cpu/bench/peak.h"

#include <time.h>

#include <chrono>

#include "core/device/cpu/level.h"
#include "core/numerics/cpu_features.h"

namespace invar::cpu {
namespace {

// Twelve independent chains cover the latency of two pipes. In assembly, so that no compiler setting decides
// what is measured; operands are zero.
#define TWELVE(op, reg)                                                                                         \
  op " %%" reg "12, %%" reg "12, %%" reg "0\n\t" op " %%" reg "12, %%" reg "12, %%" reg "1\n\t" op " %%" reg    \
     "12, %%" reg "12, %%" reg "2\n\t" op " %%" reg "12, %%" reg "12, %%" reg "3\n\t" op " %%" reg "12, %%" reg \
     "12, %%" reg "4\n\t" op " %%" reg "12, %%" reg "12, %%" reg "5\n\t" op " %%" reg "12, %%" reg "12, %%" reg \
     "6\n\t" op " %%" reg "12, %%" reg "12, %%" reg "7\n\t" op " %%" reg "12, %%" reg "12, %%" reg "8\n\t" op   \
     " %%" reg "12, %%" reg "12, %%" reg "9\n\t" op " %%" reg "12, %%" reg "12, %%" reg "10\n\t" op " %%" reg   \
     "12, %%" reg "12, %%" reg "11\n\t"

#define RUN(op, reg)                                                                                            \
  __asm__ volatile(                                                                                             \
      "vzeroall\n\t"                                                                                            \
      "1:\n\t" TWELVE(op, reg) "decq %0\n\tjnz 1b\n\tvzeroupper"                                                \
      : "+r"(rounds)                                                                                            \
      :                                                                                                         \
      : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
        "xmm12", "xmm13", "xmm14", "xmm15")

void fma256(long rounds) { RUN("vfmadd231ps", "ymm"); }
void fma512(long rounds) { RUN("vfmadd231ps", "zmm"); }
void dot512(long rounds) { RUN("vdpbf16ps", "zmm"); }

// LDTILECFG's operand: palette 1, eight tiles of 16 rows of 64 bytes.
struct AllTiles {
  unsigned char palette = 1, start_row = 0, reserved[14] = {};
  unsigned short row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  unsigned char rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Four accumulators, three rounds of them: twelve instructions as above. The assembler knows the names by itself.
void tiles(long rounds) {
  const AllTiles config;
  __asm__ volatile(
      "ldtilecfg %1\n\t"
      "tilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
      "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7\n\t"
      "1:\n\t"
      ".rept 3\n\t"
      "tdpbf16ps %%tmm6, %%tmm4, %%tmm0\n\ttdpbf16ps %%tmm7, %%tmm4, %%tmm1\n\t"
      "tdpbf16ps %%tmm6, %%tmm5, %%tmm2\n\ttdpbf16ps %%tmm7, %%tmm5, %%tmm3\n\t"
      ".endr\n\t"
      "decq %0\n\tjnz 1b\n\ttilerelease"
      : "+r"(rounds)
      : "m"(config)
      : "cc");
}

double rate_of(void (*run)(long), double flops_per_instruction, double seconds, double (*clock)()) {
  const long rounds = static_cast<long>(seconds * 1e9 / 12) + 1;  // about one instruction a nanosecond
  const double start = clock();
  run(rounds);
  return 12.0 * static_cast<double>(rounds) * flops_per_instruction / (clock() - start) / 1e9;
}

double best(void (*run)(long), double flops_per_instruction, double seconds) {
  double found = 0;
  for (int i = 0; i < 5; ++i) {
    const double rate = rate_of(run, flops_per_instruction, seconds, thread_seconds);
    if (rate > found) found = rate;
  }
  return found;
}

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double fma_now(double seconds, double (*clock)()) {
  const CpuFeatures& features = cpu_features();
  if (features.avx512) return rate_of(fma512, 32, seconds, clock);
  return features.avx2 ? rate_of(fma256, 16, seconds, clock) : 0;
}

double products_now(bool bf16, double seconds, double (*clock)()) {
  if (bf16 && usable_level() >= Level::kAmx) return rate_of(tiles, 16384, seconds, clock);
  if (bf16 && cpu_features().avx512_bf16 && pair_products_are_fast()) return rate_of(dot512, 64, seconds, clock);
  return fma_now(seconds, clock);
}

Peak measure_peak(double seconds) {
  Peak peak;
  const CpuFeatures& features = cpu_features();
  if (features.avx512) {
    peak.fma_f32 = best(fma512, 32, seconds);
  } else if (features.avx2) {
    peak.fma_f32 = best(fma256, 16, seconds);
  }
  if (features.avx512_bf16) peak.dot_bf16 = best(dot512, 64, seconds);
  return peak;
}

}  // namespace invar::cpu
