#include "core/device/cpu/bench/peak.h"

#include <time.h>

#include <chrono>

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
